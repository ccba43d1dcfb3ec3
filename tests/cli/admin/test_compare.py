# SPDX-License-Identifier: Apache-2.0
"""Where NameServers differ, by topic and broker."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cli.admin.compare_command import FactKey, Snapshot, differences
from dev.support.recorder import Answer, Recorder
from remoting.codec.frame import RemotingCommand
from schemas.broker import TopicQueueMappingInfo
from schemas.rocketmq_json import encode_cluster_info, encode_topic_route
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from tests.cli.admin.fleet import PATIENCE_S
from tests.cli.admin.run import admin


def group(name: str, addrs: Mapping[int, str], cluster: str = "c1", **more: str) -> BrokerData:
    return BrokerData(broker_addrs=dict(addrs), broker_name=name, cluster=cluster, enable_acting_master=False, **more)


def route(rows: Mapping[str, int], order_conf: str | None = None, **more: Any) -> TopicRouteData:
    """A route with one row a broker: brokerName to permission."""
    return TopicRouteData(
        broker_datas=[],
        filter_server_table={},
        order_topic_conf=order_conf,
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=8, topic_sys_flag=0, write_queue_nums=8)
            for name, perm in rows.items()
        ],
        **more,
    )


def snapshot(
    name: str, groups: list[BrokerData], routes: Mapping[str, TopicRouteData | None] | None = None
) -> Snapshot:
    clusters: dict[str, list[str]] = {}
    for one in groups:
        clusters.setdefault(one.cluster, []).append(one.broker_name)
    table = {one.broker_name: one for one in groups}
    return Snapshot(name, ClusterInfo(broker_addr_table=table, cluster_addr_table=clusters), routes or {})


A = group("broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
ROW = {"readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "topicSysFlag": "0"}


def found(*snapshots: Snapshot) -> dict[tuple[str | None, str | None], dict[str, dict[str, str] | None]]:
    return {tuple(one.place): one.found for one in differences(snapshots)}


def test_nothing_differs_whatever_the_order() -> None:
    b = group("broker-b", {0: "10.0.0.3:10911"})
    left = snapshot("left", [A, b], {"t": route({"broker-a": 6, "broker-b": 4}), "u": None})
    right = snapshot("right", [b, A], {"u": None, "t": route({"broker-b": 4, "broker-a": 6})})
    assert differences([left, right]) == []


def test_a_broker_that_one_of_them_lacks() -> None:
    assert found(snapshot("left", [A]), snapshot("right", [])) == {
        (None, "broker-a"): {
            "left": {
                "cluster": "c1",
                "enableActingMaster": "false",
                "brokerAddrs[0]": "10.0.0.1:10911",
                "brokerAddrs[1]": "10.0.0.2:10911",
            },
            "right": None,
        }
    }


def test_a_registration_shows_only_what_differs() -> None:
    moved = group("broker-a", {0: "10.0.0.2:10911"}, "c2", zone_name="z")
    assert found(snapshot("left", [A]), snapshot("right", [moved])) == {
        (None, "broker-a"): {
            "left": {
                "cluster": "c1",
                "brokerAddrs[0]": "10.0.0.1:10911",
                "brokerAddrs[1]": "10.0.0.2:10911",
            },
            "right": {"cluster": "c2", "zoneName": "z", "brokerAddrs[0]": "10.0.0.2:10911"},
        }
    }


def test_a_name_that_two_clusters_list() -> None:
    left, right = snapshot("left", [A]), snapshot("right", [A])
    right.clusters.cluster_addr_table["c0"] = ["broker-a"]
    assert found(left, right) == {(None, "broker-a"): {"left": {}, "right": {"clusters": "c0 c1"}}}


def test_topics_by_broker() -> None:
    left = snapshot("left", [], {"t": route({"broker-a": 6, "broker-b": 6}), "only-left": route({"broker-a": 6})})
    right = snapshot("right", [], {"t": route({"broker-a": 4})})
    assert found(left, right) == {
        ("only-left", None): {"left": {"route": "found"}, "right": None},
        ("only-left", "broker-a"): {"left": ROW, "right": None},
        ("t", "broker-a"): {"left": {"perm": "6"}, "right": {"perm": "4"}},
        ("t", "broker-b"): {"left": ROW, "right": None},
    }


def test_what_holds_for_a_topic_as_a_whole() -> None:
    mapping = TopicQueueMappingInfo("t", "__global__", 4, "broker-a", 1, False, {0: 0, 1: 1})
    left = snapshot("left", [], {"t": route({"broker-a": 6}, "broker-a:8"), "listed": None})
    right = snapshot(
        "right",
        [],
        {"t": route({"broker-a": 6}, topic_queue_mapping_by_broker={"broker-a": mapping}), "listed": route({})},
    )
    assert found(left, right) == {
        ("t", None): {"left": {"orderTopicConf": "broker-a:8"}, "right": {}},
        ("t", "broker-a"): {
            "left": {},
            "right": {"queueMapping": "epoch 1, scope __global__, 4 queues, 0:0 1:1"},
        },
        ("listed", None): {"left": {"route": "none"}, "right": {"route": "found"}},
    }


def test_three_name_servers_are_compared_with_each_other() -> None:
    same = [snapshot(name, [], {"t": route({"broker-a": 6})}) for name in ("one", "two")]
    odd = snapshot("three", [], {"t": route({"broker-a": 2})})
    assert found(*same, odd) == {
        ("t", "broker-a"): {"one": {"perm": "6"}, "two": {"perm": "6"}, "three": {"perm": "2"}}
    }


def test_registrations_come_first_and_all_is_in_order() -> None:
    full = snapshot("full", [A, group("a", {})], {"t": route({"b": 6, "a": 6}), "s": None})
    places = [one.place for one in differences([full, snapshot("empty", [])])]
    assert places == [
        FactKey(None, "a"),
        FactKey(None, "broker-a"),
        FactKey("s", None),
        FactKey("t", None),
        FactKey("t", "a"),
        FactKey("t", "b"),
    ]


ROUTES = st.dictionaries(
    st.sampled_from(["t", "u", "v"]), st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([2, 4, 6]))
)


@given(ROUTES, ROUTES)
def test_as_many_differences_as_rows_that_differ(
    left: dict[str, dict[str, int]], right: dict[str, dict[str, int]]
) -> None:
    def facts(topics: dict[str, dict[str, int]]) -> set[tuple[str, str, int]]:
        return {(topic, name, perm) for topic, rows in topics.items() for name, perm in rows.items()}

    made = [
        snapshot(name, [], {topic: route(rows) for topic, rows in topics.items()})
        for name, topics in (("left", left), ("right", right))
    ]
    differing = {(topic, name) for topic, name, _ in facts(left) ^ facts(right)}
    differing |= {(topic, None) for topic in left.keys() ^ right.keys()}
    assert {tuple(one.place) for one in differences(made)} == differing
    assert [one.place for one in differences(made)] == [one.place for one in differences(made[::-1])]


# --- the command ---


def name_server(shot: Snapshot, *, lists: bool = True) -> Answer:
    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == 106:
            return RemotingCommand(0, body=encode_cluster_info(shot.clusters))
        if request.code == 206:
            body = json.dumps({"topicList": list(shot.routes)}).encode()
            return RemotingCommand(0, body=body) if lists else RemotingCommand(1, remark="disable")
        data = shot.routes.get(request.ext("topic") or "")
        if data is None:
            return RemotingCommand(17, remark="No topic route info")
        return RemotingCommand(0, body=encode_topic_route(data, numeric_keys=False))

    return answer


LEFT = snapshot("left", [A], {"orders": route({"broker-a": 6}), "same": route({"broker-a": 6})})
RIGHT = snapshot(
    "right",
    [A, group("broker-b", {0: "10.0.0.3:10911"})],
    {"orders": route({"broker-a": 4}), "same": route({"broker-a": 6})},
)


def test_tables_and_exit_code(recorder: Recorder) -> None:
    left, right = (recorder.scripted(shot.name_server, name_server(shot)) for shot in (LEFT, RIGHT))
    ran = admin("compare", "-n", f"{left};{right}")
    assert ran.code == 1
    assert "brokerAddrs[0]=10.0.0.3:10911" in ran.out
    (row,) = (line for line in ran.out.splitlines() if "orders" in line)
    assert row.split() == ["orders", "broker-a", "perm=6", "perm=4"]
    assert "2 brokers and 2 topics on 2 NameServers; different: 1 broker and 1 topic." in ran.out
    ran = admin("compare", "-n", f"{left};{left.replace('127.0.0.1', 'localhost')}")
    assert (ran.code, ran.out) == (0, "1 broker and 2 topics on 2 NameServers: no difference.\n")


def test_one_topic_needs_no_list(recorder: Recorder) -> None:
    left, right = (recorder.scripted(shot.name_server, name_server(shot, lists=False)) for shot in (LEFT, RIGHT))
    both = f"{left};{right}"
    ran = admin("compare", "-n", both, "-t", "orders", "-t", "nowhere", "-o", "json")
    assert ran.code == 1
    assert [(one["topic"], one["brokerName"]) for one in ran.json["topics"]] == [("orders", "broker-a")]
    ran = admin("compare", "-n", both)
    assert (ran.code, ran.out) == (1, "")
    assert "CODE: 1  DESC: disable" in ran.err


def test_many_topics(recorder: Recorder) -> None:
    many = {f"topic-{at}": route({"broker-a": 6}) for at in range(3000)}
    left, right = (
        recorder.scripted(name, name_server(snapshot(name, [A], {**many, **odd})))
        for name, odd in (("left", {}), ("right", {"topic-17": route({"broker-a": 2})}))
    )
    ran = admin("compare", "-n", f"{left};{right}", "-o", "json")
    assert ran.code == 1
    assert [one["topic"] for one in ran.json["topics"]] == ["topic-17"]


def test_a_name_server_that_does_not_answer_is_an_error(recorder: Recorder) -> None:
    left = recorder.scripted("left", name_server(LEFT))
    silent = recorder.scripted("silent", lambda request: None)
    ran = admin("compare", "-n", f"{left};{silent}", "--timeout-s", str(PATIENCE_S))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"routelake: {silent}: no answer to request 106 within {PATIENCE_S} s\n"


# --- the command, again and again ---

WATCH = ("--watch", "--every-s", "0.1")


def test_a_difference_that_lasts_ends_the_watch(recorder: Recorder) -> None:
    left, right = (recorder.scripted(shot.name_server, name_server(shot)) for shot in (LEFT, RIGHT))
    ran = admin("compare", "-n", f"{left};{right}", *WATCH, "--settle-s", "0.3")
    assert ran.code == 1
    first, *rest = ran.out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}Z 2 brokers and 2 topics on 2 NameServers; different: .*", first)
    assert "different: 1 broker and 1 topic." in rest[-1], "each result is printed once, and the table at the end"
    assert sum("different:" in line for line in ran.out.splitlines()) == 2


def test_differences_that_pass_do_not_end_the_watch(recorder: Recorder) -> None:
    """As when brokers register with one NameServer after the other: each place agrees again, and another differs."""
    asked = 0

    def passing(request: RemotingCommand) -> RemotingCommand | None:
        nonlocal asked
        asked += request.code == 206
        odd = f"new-{asked // 3}"  # for three comparisons, that is less than the time below
        shot = snapshot("right", [A], {**LEFT.routes, odd: route({"broker-a": 6})})
        answer = name_server(shot)(request)
        assert not isinstance(answer, Awaitable)
        return answer

    left, right = recorder.scripted("left", name_server(LEFT)), recorder.scripted("right", passing)
    ran = admin("compare", "-n", f"{left};{right}", *WATCH, "--settle-s", "30", "--for-s", "1.5")
    assert ran.code == 1, "it ends while they differ"
    assert "Topic" in ran.out
    ran = admin("compare", "-n", f"{left};{left.replace('127.0.0.1', 'localhost')}", *WATCH, "--for-s", "0.3")
    assert ran.code == 0
    assert [line.partition(" ")[2] for line in ran.out.splitlines()[:-1]] == [
        "1 broker and 2 topics on 2 NameServers: no difference."
    ]


def test_a_name_server_that_is_replaced_in_time_does_not_end_the_watch(recorder: Recorder) -> None:
    """It does not answer one comparison, then it answers as before."""
    asked = 0

    def absent(request: RemotingCommand) -> RemotingCommand | None:
        nonlocal asked
        asked += request.code == 106
        answer = None if asked == 2 else name_server(LEFT)(request)
        assert not isinstance(answer, Awaitable)
        return answer

    left, right = recorder.scripted("left", name_server(LEFT)), recorder.scripted("right", absent)
    both = f"{left};{right}"
    ran = admin("compare", "-n", both, *WATCH, "--settle-s", "60", "--for-s", "8", "--timeout-s", str(PATIENCE_S))
    assert ran.code == 0, ran.err
    said = [line.partition(" ")[2] for line in ran.out.splitlines()[:-1]]
    assert said == [
        "1 broker and 2 topics on 2 NameServers: no difference.",
        f"{right}: no answer to request 106 within {PATIENCE_S} s",
        "1 broker and 2 topics on 2 NameServers: no difference.",
    ]


def test_a_name_server_that_stays_unreachable_ends_the_watch(recorder: Recorder) -> None:
    left = recorder.scripted("left", name_server(LEFT))
    silent = recorder.scripted("silent", lambda request: None)
    ran = admin(
        "compare", "-n", f"{left};{silent}", *WATCH, "--settle-s", "0.5", "--timeout-s", str(PATIENCE_S), "-o", "json"
    )
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == f"routelake: {silent}: no answer to request 106 within {PATIENCE_S} s"

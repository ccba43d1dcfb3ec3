# SPDX-License-Identifier: Apache-2.0
"""Reads: shapes, entity tags, paging, and the two ways to a route answer."""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from api.gateway.fold_status import FoldStatus
from api.http import routes_kv
from api.http.answers import BrokerAnswer, BrokerListAnswer, KvAnswer, TopicListAnswer
from api.http.etag import NOTHING, entity_tag, matches
from api.http.reads import answer
from api.http.settings import HttpSettings
from api.settings.gateway import Reads
from dev.support.http_api import HttpApi, broker, parsed, problem
from nameserver.answers import body_digest
from nameserver.route_queries import cluster_info, pick_up_topic_route
from schemas.rocketmq_json import decode_cluster_info, encode_topic_route
from schemas.route import ClusterInfo, TopicRouteData


@pytest.fixture(scope="module")
def full(api: HttpApi) -> HttpApi:
    """A gateway with a little of everything."""
    api.register(
        broker(
            "rd-a",
            topics=tuple(f"rd-{number}" for number in range(7)),
            host=50,
            cluster="rd-c1",
            zoneName="z1",
            filterServerList=["10.0.0.9:31000"],
        )
    )
    mapped = broker("rd-b", topics=("rd-0", "rd-x"), host=51, cluster="rd-c2", enableActingMaster=True)
    mapped["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {
        "rd-x": {"bname": "rd-b", "totalQueues": 4, "currIdMap": {"0": 0, "10": 1}}
    }
    api.register(mapped)
    return api


def test_a_route_is_byte_for_byte_the_wire_answer_in_standard_json(full: HttpApi) -> None:
    for topic in ("rd-0", "rd-1", "rd-x"):
        route = pick_up_topic_route(full.gateway.view, topic)
        assert route is not None
        body = encode_topic_route(route, numeric_keys=False)
        short, long = full.get(f"/v1/topics/{topic}/route"), full.get(f"/v1/topics/{topic}/route?wait_for=0")
        assert short.content == long.content == body
        assert encode_topic_route(parsed(long, TopicRouteData), numeric_keys=False) == body


VARIANTS: list[dict[str, str]] = [
    {},
    {"if-none-match": "*"},
    {"if-none-match": "same"},
    {"if-none-match": '"x", W/same'},
    {"if-none-match": '"1-0000000000000000"'},
    {"if-none-match": "nonsense"},
]


@pytest.mark.parametrize("headers", VARIANTS, ids=str)
@pytest.mark.parametrize("topic", ["rd-0", "rd-6", "rd%2D6", "nowhere", "..%2Fx", "%FF", ""])
def test_the_short_way_answers_as_the_long_way(full: HttpApi, topic: str, headers: dict[str, str]) -> None:
    tag = full.get("/v1/topics/rd-0/route").headers["etag"]
    headers = {name: value.replace("same", tag) for name, value in headers.items()}
    for _ in range(50):  # until no epoch comes between the two
        answers = [full.get(f"/v1/topics/{topic}/route{query}", headers=headers) for query in ("", "?wait_timeout=1")]
        position = [[answer.headers.get(f"x-routelake-{name}") for name in ("offset", "epoch")] for answer in answers]
        if position[0] == position[1]:
            break
    short, long = answers
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert {*short.headers.items()} == {*long.headers.items()}


def test_entity_tags(full: HttpApi) -> None:
    full.settled()
    epoch = full.get("/v1/topics/rd-0/route?reads=committed").headers["x-routelake-epoch"]
    for path in (
        "/v1/topics/rd-0/route",
        "/v1/topics?prefix=rd-",
        "/v1/clusters",
        "/v1/brokers/rd-b",
        f"/v1/topics/rd-0/route?as_of={epoch}",
        "/v1/topics/rd-0/changes?limit=1",
    ):
        first = full.get(path)
        tag = first.headers["etag"]
        assert first.status_code == 200, first.text
        assert tag.strip('"').partition("-")[2] == body_digest(first.content)
        again = full.get(path, headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"].partition("-")[2] == tag.partition("-")[2]
        assert again.headers["cache-control"] == "no-cache"
        assert full.get(path, headers={"if-none-match": '"1-ffff"'}).status_code == 200


def test_an_entity_tag_survives_epochs_that_change_something_else(full: HttpApi) -> None:
    before = full.get("/v1/topics/rd-1/route")
    receipt = full.put("/v1/kv/rd/other", {"value": "x"}).json()
    after = full.get(
        f"/v1/topics/rd-1/route?reads=committed&wait_for={receipt['offset']}&wait_timeout=30000",
        headers={"if-none-match": before.headers["etag"]},
    )
    assert after.status_code == 304
    assert int(after.headers["x-routelake-epoch"]) > int(before.headers["x-routelake-epoch"])


def test_if_none_match() -> None:
    tag = entity_tag(7, "abc")
    assert tag == '"7-abc"'
    for header in (tag, f"W/{tag}", f'"x", {tag}', f'{tag},"y"', "*", '"9-abc"', f" ,{tag} , "):
        assert matches(header, "abc"), header
    for header in ("", '"7-abd"', "7-abc", '"7-abc', f"{tag} garbage", '"abc-7"', '""', "**"):
        assert not matches(header, "abc"), header
    assert not matches("*", NOTHING)
    assert matches('"7-none"', NOTHING)
    assert not matches(" " * 60_000 + '"', "abc")  # in no time


def listed(api: HttpApi, query: str) -> TopicListAnswer:
    return parsed(api.get(f"/v1/topics?{query}"), TopicListAnswer)


def test_topic_lists(full: HttpApi) -> None:
    whole = listed(full, "prefix=rd-").topic_list
    assert whole == sorted([*(f"rd-{number}" for number in range(7)), "rd-x"])
    assert listed(full, "prefix=rd-&cluster=rd-c2").topic_list == ["rd-0", "rd-x"]
    assert listed(full, "cluster=nowhere") == TopicListAnswer(topic_list=[], total=0)
    assert listed(full, "prefix=rd-&limit=8").next_cursor is None


def test_pages_of_a_topic_list(full: HttpApi) -> None:
    found: list[str] = []
    query = "prefix=rd-&limit=3"
    cursor: str | None = None
    for _ in range(10):
        page = listed(full, query + (f"&cursor={quote(cursor)}" if cursor else ""))
        assert page.total == 8
        found += page.topic_list
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == listed(full, "prefix=rd-").topic_list


def test_a_page_goes_on_where_the_one_before_ended_whatever_went(full: HttpApi) -> None:
    full.register(broker("pg-a", topics=("pg-1", "pg-2", "pg-3"), host=52))
    page = listed(full, "prefix=pg-&limit=2")
    assert page.topic_list == ["pg-1", "pg-2"]
    full.delete("/v1/topics/pg-2")
    assert listed(full, f"prefix=pg-&cursor={page.next_cursor}").topic_list == ["pg-3"]


def test_listing_can_be_switched_off(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, enable_all_topic_list=False)
    problem(api.get("/v1/topics"), 403, "listing-disabled")
    assert api.get("/v1/topics?cluster=c1").status_code == 200
    api = make_api(fold=False, enable_topic_list=False)
    problem(api.get("/v1/topics?cluster=c1"), 403, "listing-disabled")


def test_clusters(full: HttpApi) -> None:
    answer = full.get("/v1/clusters")
    parsed(answer, ClusterInfo)
    assert decode_cluster_info(answer.content) == cluster_info(full.gateway.view)


def test_brokers(full: HttpApi) -> None:
    rows = parsed(full.get("/v1/brokers?cluster=rd-c1"), BrokerListAnswer).brokers
    assert [(row.broker_name, row.broker_addr, row.broker_id) for row in rows] == [("rd-a", "10.0.0.50:10911", 0)]
    assert rows[0].expire_timestamp == rows[0].last_update_timestamp + 120_000
    assert rows[0].data_version.counter == 1
    found = parsed(full.get("/v1/brokers/rd-a"), BrokerAnswer)
    assert (found.topic_count, found.cluster, found.zone_name, found.live) == (7, "rd-c1", "z1", rows)
    missing = full.get("/v1/brokers/nobody")
    assert problem(missing, 404, "not-found")["code"] == 22
    assert missing.headers["etag"].endswith('-none"')
    parsed(full.get("/v1/brokers"), BrokerListAnswer)


def test_a_namespace_is_written_off_the_event_loop(full: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a hundred thousand entries, or 16 MiB."""
    threads: list[int] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return answer(*given)

    monkeypatch.setattr(routes_kv, "answer", noted)
    full.put("/v1/kv/rd-thread/k", {"value": "v"})
    assert full.get("/v1/kv/rd-thread").json() == {"namespace": "rd-thread", "table": {"k": "v"}}

    async def ident() -> int:
        return threading.get_ident()

    assert threads
    assert full.loop.run(ident()) not in threads


def test_kv_entries(full: HttpApi) -> None:
    full.put("/v1/kv/rd-kv/k", {"value": ""})
    parsed(full.get("/v1/kv/rd-kv/k"), KvAnswer)


def test_a_missing_topic_is_17(api: HttpApi) -> None:
    answer = api.get("/v1/topics/nowhere/route")
    found = problem(answer, 404, "topic-not-exist")
    assert found["code"] == 17
    assert "nowhere" in found["detail"]
    assert answer.headers["x-routelake-epoch"]


@pytest.mark.parametrize("reads", Reads)
def test_an_empty_lake_is_served(make_api: Any, reads: Reads) -> None:
    unfolded: HttpApi = make_api(fold=False, reads=reads)
    answer = unfolded.get("/v1/clusters")
    assert answer.json() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert answer.headers["x-routelake-epoch"] == "0"
    problem(unfolded.get("/v1/topics/orders/route"), 404, "topic-not-exist")
    assert unfolded.get("/v1/topics").json() == {"topicList": [], "total": 0}


def test_switches_show_in_routes(make_api: Any) -> None:
    api: HttpApi = make_api(order_message_enable=True, support_acting_master=True)
    api.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"})
    offset = api.register(broker(brokerId=1, enableActingMaster=True)).json()["offset"]
    committed = f"reads=committed&wait_for={offset}&wait_timeout=30000"
    epoch = api.get(f"/v1/clusters?{committed}").headers["x-routelake-epoch"]
    for query in ("", f"?as_of={epoch}", "?wait_timeout=1", f"?{committed}"):
        route = api.get(f"/v1/topics/orders/route{query}").json()
        assert route["orderTopicConf"] == "broker-a:8"
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


def test_reads_are_counted(make_api: Any) -> None:
    api: HttpApi = make_api(http=HttpSettings(tokens={"a": "secret"}), reads=Reads.COMMITTED)
    bearer = {"authorization": "Bearer secret"}
    api.register(broker(), headers=bearer)
    api.settled()
    for _ in range(3):
        assert api.get("/v1/topics/orders/route").status_code == 200
    api.get("/v1/topics/orders/route?wait_timeout=1")
    api.get("/v1/topics/nowhere/route")
    api.get("/v1/topics")
    api.register(broker())
    text = api.get("/metrics").text
    for line in (
        'rocketmq_namesrv_requests_total{code="0",listener="http",request="getTopicRoute"} 4.0',
        'rocketmq_namesrv_requests_total{code="17",listener="http",request="getTopicRoute"} 1.0',
        'rocketmq_namesrv_requests_total{code="16",listener="http",request="registerBroker"} 1.0',
        "rocketmq_namesrv_route_request_latency_count 4.0",
        'rocketmq_namesrv_route_errors_total{code="17"} 1.0',
        'rocketmq_namesrv_registration_events_total{listener="http",outcome="applied"} 1.0',
        'rocketmq_namesrv_security_events_total{reason="unauthorized"} 1.0',
        "rocketmq_namesrv_registration_body_bytes_count 1.0",
        "rocketmq_namesrv_active_brokers 1.0",
        "rocketmq_namesrv_topics 2.0",
        "rocketmq_nameserver_up 1.0",
        "routelake_event_log_failing 0.0",
    ):
        assert line in text, text
    assert 'routelake_delta_version{table="topicQueueTable"} 1.0' in text
    assert "orders" not in text
    assert "broker-a" not in text


def test_a_fold_that_never_ran_grows_old_and_so_do_the_routes(make_api: Any) -> None:
    """A gauge without a value fires neither RoutelakeFoldDown nor RoutelakeRoutesStale."""
    api: HttpApi = make_api(fold=False)
    api.register(broker())

    def age_s(name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", api.get("/metrics").text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    first_s = age_s("routelake_fold_status_age_seconds")
    assert 0 <= first_s < age_s("routelake_fold_status_age_seconds") < 60
    assert 0 <= age_s("rocketmq_namesrv_route_freshness") < 60


def test_a_defect_is_a_problem_too(unfolded: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("api.http.routes_brokers.cluster_info", fail)
    transport = httpx.ASGITransport(unfolded.app, raise_app_exceptions=False)

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/v1/clusters")

    answer = unfolded.loop.run(get())
    found = problem(answer, 500, "internal-error")
    assert "secret" not in answer.text
    assert found["code"] == 1


@pytest.mark.parametrize("reads", Reads)
def test_every_read_of_today_is_answered_from_the_view_it_asks_for(make_api: Any, reads: Reads) -> None:
    api: HttpApi = make_api(reads=reads)
    api.put("/v1/kv/first/k", {"value": "v"})
    api.settled()
    api.fold.pause()
    api.register(broker())
    api.put("/v1/kv/n/k", {"value": "v"})
    for path, changes in {
        "/v1/topics": lambda found: found["total"],
        "/v1/topics?cluster=c1": lambda found: found["total"],
        "/v1/topics/orders/route": lambda found: len(found["queueDatas"]),
        "/v1/clusters": lambda found: len(found["clusterAddrTable"]),
        "/v1/brokers": lambda found: len(found["brokers"]),
        "/v1/brokers/broker-a": lambda found: len(found["live"]),
        "/v1/kv/n": lambda found: len(found["table"]),
        "/v1/kv/n/k": lambda found: len(found["value"]),
    }.items():

        def ask(view: str, path: str = path, count: Any = changes) -> tuple[bool, int]:
            answer = api.get(f"{path}{'&' if '?' in path else '?'}{view}")
            there = answer.status_code == 200 and count(answer.json()) > 0
            return there, int(answer.headers["x-routelake-offset"])

        (live_view, head_offset), (committed, committed_offset) = ask("reads=live"), ask("reads=committed")
        assert (live_view, committed) == (True, False), path
        assert head_offset > committed_offset
        assert ask("wait_for=0")[0] == (reads is Reads.LIVE), path
    api.fold.resume()


@pytest.mark.parametrize("is_fallen_back", [False, True])
def test_the_offset_of_committed_reads_does_not_go_back(make_api: Any, is_fallen_back: bool) -> None:
    """The status of the fold with a new epoch comes before the epoch itself, from an object store by seconds."""
    api: HttpApi = make_api(reads=Reads.LIVE if is_fallen_back else Reads.COMMITTED, clock_interval_s=3600.0)
    api.register(broker())
    last = api.settled()
    api.fold.pause()
    gateway = api.gateway
    if is_fallen_back:
        gateway.replica.fallback_reason = "a test"
    epoch = gateway.committed.view.epoch

    async def told(*status: int) -> None:
        gateway.fold._status = FoldStatus(*status, time_ms=0)
        gateway._fold_moved()

    api.loop.run(told(epoch, last + 10))  # CLOCK and other events make no epoch
    api.loop.run(told(epoch + 1, last + 11))
    answer = api.get(f"/v1/topics/orders/route?wait_for={last + 10}&wait_timeout=0")
    assert (answer.status_code, answer.headers.get("x-routelake-offset")) == (200, str(last + 10))
    answer = api.get(f"/v1/topics/orders/route?wait_for={last + 11}&wait_timeout=0")
    assert answer.status_code == 503, "the epoch is not here yet"


def test_the_past_is_in_the_tables(make_api: Any) -> None:
    api: HttpApi = make_api()
    api.register(broker())
    last = api.settled()
    api.fold.pause()
    offset = api.delete("/v1/topics/orders").json()["offset"]
    found = problem(api.get("/v1/topics/orders/route?as_of=1&reads=live"), 400, "bad-parameter")
    assert found["errors"][0]["field"] == "reads"
    assert api.get("/v1/topics/orders/route?as_of=1&reads=committed").status_code in (200, 404)
    for path in ("/v1/topics/orders/changes", "/v1/epochs"):
        problem(api.get(f"{path}?reads=live"), 400, "bad-parameter")
        answer = api.get(path)
        assert last <= int(answer.headers["x-routelake-offset"]) < offset
        problem(api.get(f"{path}?wait_for={offset}&wait_timeout=20"), 503, "system-busy")
    later = api.begin("GET", f"/v1/topics/orders/changes?limit=1&wait_for={offset}&wait_timeout=30000")
    api.fold.resume()
    assert later.result(40).json()["changes"][0]["offset"] == offset

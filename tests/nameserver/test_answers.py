# SPDX-License-Identifier: Apache-2.0
"""Route answers: rules of the reference's chapter 4, golden bytes, and the cache against the plain encoder."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.support.alone import alone
from dev.support.feed import EVERY_FIELD, apply, complete_rows, group, queue, view_of
from dev.support.view_tables import TableChanges, changes_of_tables, complete
from nameserver.answers import RouteAnswers
from nameserver.route_queries import cluster_info, filter_by_zone, pick_up_topic_route
from nameserver.view.snapshot import RouteView
from schemas.rocketmq_json import encode_cluster_info, encode_topic_route
from schemas.route import TopicRouteData

STANDARD = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
    b'"cluster":"c1","enableActingMaster":false,"zoneName":"HZ"}],'
    b'"filterServerTable":{"10.0.0.1:10911":["10.0.0.1:31000"]},'
    b'"orderTopicConf":"broker-a:8",'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],'
    b'"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{"0":0,"1":3},"dirty":false,'
    b'"epoch":7,"scope":"__global__","topic":"orders","totalQueues":4}}}'
)
NUMERIC = (
    STANDARD.replace(b'{"0":"10.0.0.1', b'{0:"10.0.0.1')
    .replace(b'"1":"10.0.0.2', b'1:"10.0.0.2')
    .replace(b'{"0":0,"1":3}', b"{0:0,1:3}")
)


def body(
    answers: RouteAnswers, view: RouteView, topic: str, *, numeric_keys: bool = False, zone: str | None = None
) -> bytes | None:
    answer = answers.route(view, topic, numeric_keys=numeric_keys, zone=zone)
    return None if answer is None else answer.body


def test_golden_bytes_of_every_field() -> None:
    view = view_of(complete_rows(EVERY_FIELD))
    answers = RouteAnswers(order_message_enable=True)
    assert body(answers, view, "orders") == STANDARD
    assert body(answers, view, "orders", numeric_keys=True) == NUMERIC
    answers.switch(support_acting_master=False, order_message_enable=False)
    assert body(answers, view, "orders") == STANDARD.replace(b'"orderTopicConf":"broker-a:8",', b"")


def test_golden_bytes_of_the_least() -> None:
    view = view_of(complete_rows({"topicQueueTable": {("b", "t"): queue()}, "brokerAddrTable": {("b",): group()}}))
    assert body(RouteAnswers(order_message_enable=True), view, "t") == (
        b'{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","cluster":"c1","enableActingMaster":false}],'
        b'"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def test_no_route_without_rows_or_known_brokers() -> None:
    view = view_of(complete_rows({"topicQueueTable": {("ghost", "t"): queue()}}))
    answers = RouteAnswers()
    assert body(answers, view, "t") is None and pick_up_topic_route(view, "t") is None
    assert body(answers, view, "x") is None and pick_up_topic_route(view, "x") is None
    assert body(answers, view, "t", zone="hz") is None


def test_rows_of_unknown_brokers_are_listed_beside_known_ones() -> None:
    view = view_of(
        complete_rows(
            {
                "topicQueueTable": {("ghost", "t"): queue(), ("b", "t"): queue()},
                "brokerAddrTable": {("b",): group(_0="x")},
            }
        )
    )
    route = pick_up_topic_route(view, "t")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["b"]
    assert [data.broker_name for data in route.queue_datas] == ["b", "ghost"]


# --- acting master (4.2) ---


def acting_view(perm: int = 4, *, acting: bool = True, topic: str = "t", **addrs: str) -> RouteView:
    return view_of(
        complete_rows(
            {
                "topicQueueTable": {("b", topic): queue(perm)},
                "brokerAddrTable": {("b",): group(acting=acting, **addrs)},
            }
        )
    )


def shown(view: RouteView, topic: str = "t", *, switch: bool = True) -> dict[int, str]:
    route = pick_up_topic_route(view, topic, support_acting_master=switch)
    assert route is not None
    assert body(RouteAnswers(support_acting_master=switch), view, topic) == encode_topic_route(
        route, numeric_keys=False
    )
    return route.broker_datas[0].broker_addrs


def test_the_smallest_id_of_a_group_without_master_is_shown_as_master() -> None:
    view = acting_view(_2="s2", _1="s1")
    assert shown(view) == {0: "s1", 2: "s2"}
    assert view.broker_member_group("b") == {1: "s1", 2: "s2"}  # the tables keep the true id
    assert cluster_info(view).broker_addr_table["b"].broker_addrs == {1: "s1", 2: "s2"}


def test_nobody_acts_where_a_condition_is_missing() -> None:
    assert shown(acting_view(_1="s1"), switch=False) == {1: "s1"}
    assert shown(acting_view(acting=False, _1="s1")) == {1: "s1"}
    assert shown(acting_view(perm=6, _1="s1")) == {1: "s1"}
    assert shown(acting_view(_0="m", _1="s1")) == {0: "m", 1: "s1"}
    assert shown(acting_view()) == {}
    topic = "rmq_sys_SYNC_BROKER_MEMBER_b"
    assert shown(acting_view(topic=topic, _1="s1"), topic) == {1: "s1"}


# --- zones (4.3) ---


def zoned(zone: str, tables: TableChanges, *, acting: bool = False) -> TopicRouteData:
    view = view_of(complete_rows(tables))
    route = pick_up_topic_route(view, "t", support_acting_master=acting)
    assert route is not None
    kept = filter_by_zone(route, zone)
    assert body(RouteAnswers(support_acting_master=acting), view, "t", zone=zone) == encode_topic_route(
        kept, numeric_keys=True
    )
    return kept


ZONES: TableChanges = {
    "topicQueueTable": {(name, "t"): queue() for name in ("hz", "sh", "none", "slave")},
    "brokerAddrTable": {
        ("hz",): group(zone="HZ", _0="a"),
        ("sh",): group(zone="sh", _0="b"),
        ("none",): group(_0="c"),
        ("slave",): group(zone="sh", _1="d"),
    },
    "filterServerTable": {(name, "c1", addr): {"filterServerList": ["f"]} for name, addr in (("hz", "a"), ("sh", "b"))},
}


def test_a_zone_keeps_its_own_brokers_and_those_without_master() -> None:
    kept = zoned("hz", ZONES)
    assert {data.broker_name for data in kept.broker_datas} == {"hz", "slave"}
    assert {data.broker_name for data in kept.queue_datas} == {"hz", "slave"}
    assert list(kept.filter_server_table) == ["a"]


def test_a_zone_may_leave_nothing() -> None:
    tables = {name: {key: row for key, row in rows.items() if key[0] != "slave"} for name, rows in ZONES.items()}
    kept = zoned("nowhere", tables)
    assert (kept.broker_datas, kept.queue_datas, kept.filter_server_table) == ([], [], {})


@pytest.mark.parametrize("zone", ["hz", "nowhere", " "])
def test_a_broker_with_an_empty_zone_is_in_no_other(zone: str) -> None:
    brokers = {**ZONES["brokerAddrTable"], ("none",): group(zone="", _0="c")}
    kept = zoned(zone, {**ZONES, "brokerAddrTable": brokers})
    assert "none" not in {data.broker_name for data in kept.broker_datas}


def test_the_zone_filter_sees_acting_masters_as_masters() -> None:
    tables: TableChanges = {
        "topicQueueTable": {("slave", "t"): queue(4)},
        "brokerAddrTable": {("slave",): group(zone="sh", acting=True, _1="d")},
    }
    assert zoned("hz", tables).broker_datas != []
    assert zoned("hz", tables, acting=True).broker_datas == []


# --- the cache ---

switches: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"support_acting_master": st.booleans(), "order_message_enable": st.booleans()}
)


@given(st.lists(changes_of_tables, min_size=1, max_size=5), st.lists(switches, min_size=1, max_size=2), st.booleans())
def test_cached_answers_equal_the_plain_encoder(
    epochs: list[TableChanges], variants: list[dict[str, Any]], tiny: bool
) -> None:
    answers, view = RouteAnswers(max_bytes=600 if tiny else 1 << 20), RouteView.empty()
    for changes in map(complete, epochs):
        view = apply(view, changes)
        for topic in [*view.topics, "unknown"]:
            for variant in variants:
                answers.switch(**variant)
                route = pick_up_topic_route(view, topic, **variant)
                for numeric in (False, True):
                    expected = None if route is None else encode_topic_route(route, numeric_keys=numeric)
                    assert body(answers, view, topic, numeric_keys=numeric) == expected
                    assert body(answers, view, topic, numeric_keys=numeric) == expected
                expected = None if route is None else encode_topic_route(filter_by_zone(route, "hZ"), numeric_keys=True)
                assert body(answers, view, topic, zone="hZ") == expected
        assert answers.cluster_info(view) == encode_cluster_info(cluster_info(view))


def test_an_answer_survives_swaps_that_do_not_touch_it() -> None:
    answers = RouteAnswers()
    view = view_of(
        complete_rows(
            {
                "topicQueueTable": {
                    **{(broker, topic): queue() for broker in "ab" for topic in ("t", "u", "v")},
                    ("b", "only-b"): queue(),
                },
                "brokerAddrTable": {("a",): group(_0="x"), ("b",): group(_0="y")},
            }
        )
    )
    first = body(answers, view, "t")
    assert body(answers, view, "u") is first  # topics that look alike share one body
    only_b = body(answers, view, "only-b")
    view = apply(view, complete_rows({"topicQueueTable": {("a", "u"): queue(4)}, "brokerAddrTable": {("c",): group()}}))
    assert body(answers, view, "t") is first
    assert body(answers, view, "u") != first
    view = apply(view, complete_rows({"brokerAddrTable": {("a",): group(_0="x", _1="x1")}}))
    assert body(answers, view, "t") != first
    assert body(answers, view, "only-b") is only_b
    view = apply(view, complete_rows({"brokerAddrTable": {("a",): group(_0="x")}}))
    assert body(answers, view, "t") == first


def many_answers(topics: int) -> RouteView:
    """No two topics alike."""
    return view_of(
        complete_rows(
            {
                "topicQueueTable": {("a", f"t{number}"): queue(nums=number) for number in range(topics)},
                "brokerAddrTable": {("a",): group(_0="x", zone="z")},
            }
        )
    )


def test_kept_answers_are_bounded() -> None:
    answers, view = RouteAnswers(max_bytes=100_000), many_answers(2_000)
    for number in range(2_000):
        found = body(answers, view, f"t{number}")
        assert found is not None and b'"readQueueNums":%d,' % number in found
        assert body(answers, view, f"t{number}", numeric_keys=True) is not None
        assert body(answers, view, f"t{number}", zone="z") is not None
    assert 10_000 < answers.held_bytes <= 125_000


def test_kept_answers_are_bounded_by_their_memory() -> None:
    limit = 2_000_000
    assert limit / 2 < alone(really_held, limit) < 1.25 * limit


def really_held(limit: int) -> int:
    """Bytes that answers and the parts of their replies take."""
    view = many_answers(3_000)
    answers = RouteAnswers(max_bytes=limit)
    others = RouteAnswers()
    for number in range(3_000):  # the pieces of rows have a cache of their own
        others.route(view, f"t{number}")
    tracemalloc.start()
    try:
        for number in range(3_000):
            answer = answers.route(view, f"t{number}")
            assert answer is not None and answer.digest
            for digits in range(1, 10):
                answer.reply.pieces(b"1" * digits)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_one_client_cannot_evict_answers_that_others_use() -> None:
    """A client asks for every topic in every dialect and zone, and for others that do not exist, in any number."""
    answers, view = RouteAnswers(max_bytes=100_000), many_answers(2_000)
    for _ in range(3):
        view = apply(view, {})
        used = {topic: answers.route(view, topic) for topic in ("t0", "t1", "t1999")}
        for number in range(2_000):
            for name in (f"t{number}", f"no-{number}"):
                answers.route(view, name)
                answers.route(view, name, numeric_keys=True)
                answers.route(view, name, zone="z")
                answers.route(view, name, zone=f"zone-{number}")
        assert {topic: answers.route(view, topic) for topic in used} == used
        view = apply(view, {})
        assert {topic: answers.route(view, topic) for topic in used} == used


def test_the_least_requested_answers_make_room() -> None:
    answers, view = RouteAnswers(max_bytes=100_000), many_answers(2_000)
    for number in range(1_000):
        answers.route(view, f"t{number}")
    assert answers.route(view, "t1999") is not answers.route(view, "t1999")

    def moved(view: RouteView, number: int) -> RouteView:
        return apply(view, {"kvConfigTable": {("n", "k"): {"value": str(number)}}})

    view = moved(moved(view, 1), 2)
    for number in range(3, 5):
        view = moved(view, number)
        kept = answers.route(view, "t1999")
    assert answers.route(view, "t1999") is kept


def test_zones_that_nobody_is_in_have_one_answer() -> None:
    answers, view = RouteAnswers(), view_of(complete_rows(ZONES))
    assert answers.route(view, "t", zone="nowhere") is answers.route(view, "t", zone="elsewhere")
    assert answers.route(view, "t", zone="hz") is answers.route(view, "t", zone="HZ")
    assert answers.route(view, "t", zone="hz") is not answers.route(view, "t", zone="sh")


def test_digest_and_reply_are_of_the_body() -> None:
    answer = RouteAnswers(order_message_enable=True).route(view_of(complete_rows(EVERY_FIELD)), "orders")
    assert answer is not None
    assert answer.digest == hashlib.blake2b(STANDARD, digest_size=8).hexdigest()
    assert answer.reply.encode(b"7").endswith(b"}" + STANDARD)
    assert answer.reply is answer.reply


def test_the_zone_name_is_compared_without_case() -> None:
    assert [data.broker_name for data in zoned("Hz", ZONES).broker_datas] == ["hz", "slave"]


@pytest.mark.parametrize("value", ["", "broker-a:8"])
def test_an_empty_order_configuration_is_shown(value: str) -> None:
    tables = complete_rows(EVERY_FIELD | {"kvConfigTable": {("ORDER_TOPIC_CONFIG", "orders"): {"value": value}}})
    found = body(RouteAnswers(order_message_enable=True), view_of(tables), "orders")
    assert found is not None and json.loads(found)["orderTopicConf"] == value

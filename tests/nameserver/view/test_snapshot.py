# SPDX-License-Identifier: Apache-2.0
"""RouteView: view = full scan, old views never change, and the queries one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.support.feed import apply, complete_rows, group, queue, step, view_of
from dev.support.view_tables import Rows, TableChanges, as_tables, changes_of_tables, complete, queue_rows
from nameserver.route_queries import filter_server_table
from nameserver.view import apply as advance
from nameserver.view.snapshot import RegistrationResult, RouteView
from schemas.broker import QueueRow
from schemas.route_commit import NO_COMMIT
from schemas.tables import STATE_TABLES

TABLES: TableChanges = {
    "topicQueueTable": {
        ("broker-a", "orders"): queue(),
        ("broker-b", "orders"): queue(4),
        ("broker-a", "unit"): queue(flag=1),
        ("broker-b", "unitsub"): queue(flag=3),
        ("broker-b", "sub"): queue(flag=2),
    },
    "brokerAddrTable": {("broker-a",): group(_0="a0", _1="a1"), ("broker-b",): group("c2", _0="b0")},
    "clusterAddrTable": {("c1", "broker-a"): {}, ("c2", "broker-b"): {}, ("c2", "broker-a"): {}},
    "brokerLiveTable": {("broker-a", "c1", "a0"): {"haServerAddr": "a0:ha", "dataVersionCounter": 3}},
    "kvConfigTable": {
        ("ORDER_TOPIC_CONFIG", "orders"): {"value": "broker-a:8"},
        ("ORDER_TOPIC_CONFIG", "gone"): {"value": None},
        ("empty", "k"): {"value": None},
    },
}


@pytest.fixture
def view() -> RouteView:
    return view_of(complete_rows(TABLES))


@given(st.lists(changes_of_tables, max_size=6))
def test_a_view_that_was_changed_step_by_step_equals_a_full_scan(epochs: list[TableChanges]) -> None:
    view, state = RouteView.empty(), {spec.name: Rows() for spec in STATE_TABLES}
    seen = []
    for changes in map(complete, epochs):
        view, state = apply(view, changes), step(state, changes)
        assert as_tables(view) == state
        seen.append((view, state))
    fresh = view_of({name: dict(rows) for name, rows in state.items()})
    assert fresh.groups == view.groups
    for old, scan in seen:  # none of them has changed since
        assert as_tables(old) == scan


@given(changes_of_tables, changes_of_tables)
def test_what_did_not_change_stays_the_same_object(first: TableChanges, second: TableChanges) -> None:
    before = view_of(complete(first))
    after = apply(before, complete(second))
    for topic, rows in before.topics.items():
        same = queue_rows(before, topic) == queue_rows(after, topic)
        assert (after.topics.get(topic) is rows) == same
    for name, broker_group in before.groups.items():
        assert (after.groups.get(name) is broker_group) == (after.groups.get(name) == broker_group)
    assert apply(after, {}).topics is after.topics


def test_equal_topics_are_one_object() -> None:
    rows = {(broker, topic): queue() for broker in ("b1", "b2") for topic in ("t1", "t2", "t3")}
    view = view_of(complete({"topicQueueTable": dict(rows)}))
    assert view.topics["t1"] is view.topics["t2"] is view.topics["t3"]
    apart = apply(view, complete({"topicQueueTable": {("b1", "t1"): queue(4)}}))
    assert apart.topics["t1"] is not apart.topics["t2"]
    assert apart.topics["t1"].brokers is apart.topics["t2"].brokers
    again = apply(apart, complete({"topicQueueTable": {("b1", "t1"): queue()}}))
    assert again.topics["t1"] is view.topics["t2"]


def test_the_empty_view_holds_nothing_of_the_log() -> None:
    view = RouteView.empty()
    assert view.commit == NO_COMMIT and (view.epoch, view.log_offset) == (0, -1)
    assert not view.topics and view.broker_member_group("x") == {} and view.kv_list("x") is None
    assert view.system_topics() == ((), None)


def test_topic_lists(view: RouteView) -> None:
    assert sorted(view.topics) == ["orders", "sub", "unit", "unitsub"]
    assert sorted(view.topics_in("c1")) == ["orders", "unit"]
    assert sorted(view.topics_in("c2")) == ["orders", "sub", "unit", "unitsub"]
    assert view.topics_in("nowhere") == []
    assert sorted(view.unit_topics()) == ["unit", "unitsub"]
    assert sorted(view.unit_sub_topics()) == ["sub", "unitsub"]
    assert view.unit_sub_un_unit_topics() == ["sub"]
    assert (view.topic_count("broker-a"), view.topic_count("broker-b"), view.topic_count("x")) == (2, 3, 0)


def test_system_topics_are_cluster_and_broker_names(view: RouteView) -> None:
    topics, addr = view.system_topics()
    assert sorted(topics) == ["broker-a", "broker-b", "c1", "c2"]
    assert addr in {"a0", "a1", "b0"}


def test_a_group_without_addresses_offers_none() -> None:
    view = view_of(complete_rows({"brokerAddrTable": {("broker-a",): group()}}))
    assert view.system_topics().broker_addr is None
    assert view.broker_member_group("broker-a") == {}


def test_members_and_live_rows(view: RouteView) -> None:
    assert view.broker_member_group("broker-a") == {0: "a0", 1: "a1"}
    live = view.live_row("broker-a", "c1", "a0")
    assert live is not None and live.data_version.counter == 3
    assert view.live_rows("broker-a") == {("c1", "a0"): live}
    assert view.live_row("broker-a", "c2", "a0") is None and view.live_rows("x") == {}


def test_a_slave_is_told_its_master(view: RouteView) -> None:
    assert view.registration_result("c1", "broker-a", 1) == RegistrationResult("a0", "a0:ha")
    assert view.registration_result("c1", "broker-a", 0) == RegistrationResult()
    assert view.registration_result("c2", "broker-a", 1) == RegistrationResult()  # the master is live in c1
    assert view.registration_result("c2", "broker-b", 1) == RegistrationResult()  # the master is not live
    assert view.registration_result("c1", "x", 1) == RegistrationResult()


def test_kv(view: RouteView) -> None:
    assert view.kv_get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:8" == view.order_topic_conf("orders")
    assert view.kv_get("ORDER_TOPIC_CONFIG", "gone") is None and view.kv_get("x", "y") is None
    assert view.kv_list("ORDER_TOPIC_CONFIG") == {"orders": "broker-a:8"}
    assert view.kv_list("empty") == {}
    assert view.kv_list("never") is None


def test_of_equal_mappings_the_latest_registration_counts() -> None:
    def mapping(total: int, offset: int) -> dict[str, Any]:
        return {"mapping": f'{{"bname":"m","totalQueues":{total},"currIdMap":{{"0":1}}}}', "registeredOffset": offset}

    view = view_of(
        complete(
            {
                "topicQueueMappingInfoTable": {
                    ("broker-a", "t", "m"): mapping(1, 5),
                    ("broker-b", "t", "m"): mapping(2, 9),
                    ("broker-c", "t", "m"): mapping(3, 7),
                    ("broker-c", "t", "n"): mapping(4, 1),
                }
            }
        )
    )
    found = view.mapping("t")
    assert found is not None and {bname: info.total_queues for bname, info in found.items()} == {"m": 2, "n": 4}
    assert found["m"].curr_id_map == {0: 1}
    assert view.mapping("x") is None


def test_filter_servers_follow_their_group_and_address() -> None:
    tables = complete_rows(
        {
            "brokerAddrTable": {("broker-a",): group(_0="a0"), ("broker-b",): group("c2", _0="a0", _1="b1")},
            "filterServerTable": {("broker-a", "c1", "a0"): {"filterServerList": ["f1"]}},
        }
    )
    view = view_of(tables)
    assert view.groups["broker-a"].filter_servers == {"a0": ("f1",)}
    assert view.groups["broker-b"].filter_servers == {}  # another cluster
    moved = apply(view, complete_rows({"filterServerTable": {("broker-b", "c2", "b1"): {"filterServerList": ["f2"]}}}))
    assert moved.groups["broker-b"].filter_servers == {"b1": ("f2",)}
    assert moved.groups["broker-a"] is view.groups["broker-a"]
    same = apply(moved, complete_rows({"filterServerTable": {("broker-x", "c2", "b1"): {"filterServerList": ["f3"]}}}))
    assert same.groups["broker-b"] is moved.groups["broker-b"], "anybody can register at that address"
    gone = apply(same, {"filterServerTable": {("broker-b", "c2", "b1"): None}})
    assert gone.groups["broker-b"].filter_servers == {}


def test_an_address_of_several_groups_has_the_filter_servers_that_all_of_them_say() -> None:
    def table(*lists: list[str] | None) -> dict[str, list[str]]:
        names = [f"broker-{number}" for number in range(len(lists))]
        found = view_of(
            complete_rows(
                {
                    "brokerAddrTable": {(name,): group(_0="a0") for name in names},
                    "filterServerTable": {
                        (name, "c1", "a0"): {"filterServerList": servers}
                        for name, servers in zip(names, lists, strict=True)
                        if servers is not None
                    },
                }
            )
        )
        return filter_server_table(found.groups.values())

    assert table(["f1"], ["f1"]) == {"a0": ["f1"]}
    assert table(["f1"], ["f2"]) == table(["f1"], None) == table(None, ["f1"]) == table(["f1"], None, ["f1"]) == {}


def test_serials_differ_where_an_answer_may() -> None:
    empty = RouteView.empty()
    assert apply(empty, {}).serial == empty.serial != RouteView.empty().serial
    for table, rows in complete_rows(TABLES).items():
        assert (apply(empty, {table: rows}).serial == empty.serial) == (not rows or table == "brokerLiveTable"), table


def test_another_line_of_views_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_POOL_SLACK", 0)
    view = view_of(complete_rows(TABLES))
    other = view.apart()
    assert (as_tables(other), other.serial) == (as_tables(view), view.serial)
    pooled = dict(other._pool._rows)
    for nums in range(1, 20):
        view = apply(view, complete({"topicQueueTable": {("broker-a", "orders"): queue(nums=nums)}}))
    assert other._pool._rows == pooled
    assert as_tables(other) != as_tables(view)


def test_the_pool_forgets_what_no_topic_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_POOL_SLACK", 0)
    view = view_of(complete({"topicQueueTable": {("b", "t"): queue(), ("b", "u"): queue(nums=0)}}))
    for nums in range(1, 20):
        view = apply(view, complete({"topicQueueTable": {("b", "t"): queue(nums=nums)}}))
        assert queue_rows(view, "t") == {"b": QueueRow(nums, nums, 6, 0)}
        assert queue_rows(view, "u") == {"b": QueueRow(0, 0, 6, 0)}
        assert len(view._pool._rows) <= 5
    again = apply(view, complete({"topicQueueTable": {("b", "t"): queue(nums=0)}}))
    assert again.topics["t"] is again.topics["u"]

# SPDX-License-Identifier: Apache-2.0
"""UNREGISTER_BROKER and what a leaving member does to its group. Numbers are of the behaviour reference, chapter 3.4."""

from __future__ import annotations

import pytest

from dev.support.events import V2, Fold, register, topics, unregister, wipe
from schemas.broker import DataVersion


@pytest.fixture
def fold() -> Fold:
    return Fold()


def test_1_live_row_and_filter_servers_go(fold: Fold) -> None:
    fold(register(filter_server_list=["f:1"]))
    fold(register("a1:1", 1))
    assert fold(unregister()).verdict == "applied"
    assert fold.live() == {("c", "a1:1")}
    assert fold.group().filter_servers == {}


def test_2_every_id_with_that_address_goes_whatever_id_is_given(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a1:1", 1))
    fold(unregister("a0:1", 7))
    assert fold.addrs() == {1: "a1:1"}


def test_2_a_wrong_address_removes_nothing(fold: Fold) -> None:
    fold(register())
    assert fold(unregister("wrong:1")).verdict == "unchanged"
    assert fold.addrs() == {0: "a0:1"}
    assert fold.live() == {("c", "a0:1")}


def test_3_the_last_member_takes_the_group_with_it(fold: Fold) -> None:
    fold(register())
    fold(unregister())
    assert fold.state.groups == {}


def test_3_only_the_requests_cluster_forgets_the_name(fold: Fold) -> None:
    fold(register())
    fold(register("a1:1", 1, cluster="other"))
    fold(unregister("a1:1", 1, cluster="other"))
    fold(unregister())
    group = fold.group()
    assert not group.known
    assert group.clusters == {"other"}


def test_3_the_group_comes_back_with_the_cluster_of_whoever_is_first_now(fold: Fold) -> None:
    fold(register(zone_name="HZ", enable_acting_master=True))
    fold(register("a1:1", 1, cluster="other"))
    fold(unregister("a1:1", 1, cluster="other"))
    fold(unregister())
    fold(register(cluster="third"))
    assert (fold.group().cluster, fold.group().clusters) == ("third", frozenset({"other", "third"}))
    assert (fold.group().zone_name, fold.group().enable_acting_master) == (None, False)


def test_3_an_entry_without_addresses_is_taken_away(fold: Fold) -> None:
    fold(register(table=topics("T")))  # refused, but it left the entry
    assert fold.group().known
    fold(unregister())
    assert fold.state.groups == {}


def test_rows_of_a_removed_name_are_dropped(fold: Fold) -> None:
    fold(register())
    fold(register("x0:1", name="x"))
    fold(unregister())
    assert fold.topics() == {}
    assert set(fold.topics("x")) == {"T", "U"}


def test_rows_of_a_group_that_lost_its_master_lose_the_write_bit(fold: Fold) -> None:
    fold(register("a0:1", 0, enable_acting_master=True))
    fold(register("a1:1", 1, enable_acting_master=True))
    fold(unregister("a0:1", 0))
    assert fold.perms() == {"T": 4, "U": 4}


def test_they_keep_it_without_acting_master(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a1:1", 1))
    fold(unregister("a0:1", 0))
    assert fold.perms() == {"T": 6, "U": 6}


def test_they_keep_it_while_the_master_stays(fold: Fold) -> None:
    fold(register("a0:1", 0, enable_acting_master=True))
    fold(register("a1:1", 1, enable_acting_master=True))
    fold(unregister("a1:1", 1))
    assert fold.perms() == {"T": 6, "U": 6}


def test_even_a_wrong_address_wipes_a_group_without_master(fold: Fold) -> None:
    """The name counts as reduced, whether anything was removed or not."""
    fold(register("a1:1", 1, enable_acting_master=False))
    fold(register("a2:1", 2, enable_acting_master=True))
    assert fold.perms() == {"T": 6, "U": 6}
    assert fold(unregister("wrong:1")).verdict == "applied"
    assert fold.perms() == {"T": 4, "U": 4}


def test_the_master_that_comes_back_writes_its_rows_anew(fold: Fold) -> None:
    fold(register("a0:1", 0, enable_acting_master=True))
    fold(register("a1:1", 1, enable_acting_master=True))
    fold(unregister("a0:1", 0))
    fold(register("a0:1", 0, enable_acting_master=True))
    assert fold.perms() == {"T": 6, "U": 6}


def test_a_missing_id_stops_half_way(fold: Fold) -> None:
    """RocketMQ fails with a null pointer: the live row is gone, address and topics remain."""
    fold(register(filter_server_list=["f:1"]))
    assert fold(unregister(broker_id=None)).verdict == "applied"
    assert fold.live() == set()
    assert fold.group().filter_servers == {}
    assert fold.addrs() == {0: "a0:1"}
    assert set(fold.topics()) == {"T", "U"}


def test_a_missing_id_removes_an_entry_without_addresses(fold: Fold) -> None:
    fold(register(table=topics("T")))
    fold(unregister(broker_id=None))
    assert fold.state.groups == {}


def test_an_unknown_broker_is_unchanged(fold: Fold) -> None:
    assert fold(unregister()).verdict == "unchanged"
    assert fold.state.groups == {}


def test_a_superseded_address_leaves_only_its_live_row(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a9:1", 0, version=V2))
    assert fold.live() == {("c", "a0:1"), ("c", "a9:1")}
    fold(unregister("a0:1", 0))
    assert fold.live() == {("c", "a9:1")}
    assert fold.addrs() == {0: "a9:1"}


def test_unregistration_after_a_conflict(fold: Fold) -> None:
    fold(register("a0:1", version=DataVersion(2, 0, 0)))
    fold(register("a1:1", version=DataVersion(1, 0, 0)))
    assert fold(unregister("a1:1")).verdict == "unchanged"
    fold(unregister("a0:1"))
    assert fold.state.groups == {}


def test_a_row_change_for_everything_that_went(fold: Fold) -> None:
    fold(register(filter_server_list=["f:1"]))
    fold(unregister())
    gone = {row.table.name for row in fold.rows if row.after is None}
    assert gone == {"topicQueueTable", "brokerAddrTable", "clusterAddrTable", "brokerLiveTable", "filterServerTable"}
    assert all(row.after is None for row in fold.rows)


def test_wiping_twice_changes_nothing_the_second_time(fold: Fold) -> None:
    fold(register())
    assert fold(wipe()).verdict == "applied"
    assert fold(wipe()).verdict == "unchanged"

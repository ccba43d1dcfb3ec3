# SPDX-License-Identifier: Apache-2.0
"""REGISTER_BROKER, rule by rule. Numbers are the steps of the behaviour reference, chapter 3.2."""

from __future__ import annotations

import pytest

from dev.support.events import (
    ROW,
    V0,
    V1,
    V2,
    Fold,
    add,
    delete_topic,
    heartbeat,
    mapping,
    register,
    topics,
    unregister,
    wipe,
)
from schemas.broker import DEFAULT_HEARTBEAT_TIMEOUT_MS, DataVersion, QueueRow
from schemas.outcomes import SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT, TOPICS_REQUIRED


@pytest.fixture
def fold() -> Fold:
    return Fold()


def test_step_1_the_name_joins_the_cluster(fold: Fold) -> None:
    assert fold(register()).verdict == "applied"
    assert fold.group().clusters == {"c"}


def test_step_1_a_name_in_two_clusters_is_listed_by_both(fold: Fold) -> None:
    fold(register())
    fold(register("a1:1", 1, cluster="other"))
    assert fold.group().clusters == {"c", "other"}


def test_step_2_the_cluster_stays_the_first_registrants(fold: Fold) -> None:
    fold(register())
    fold(register("a1:1", 1, cluster="other"))
    assert fold.group().cluster == "c"


def test_step_3_the_last_writer_of_the_group_decides_acting_master_and_zone(fold: Fold) -> None:
    fold(register(enable_acting_master=True, zone_name="HZ"))
    assert (fold.group().enable_acting_master, fold.group().zone_name) == (True, "HZ")
    fold(register("a1:1", 1, enable_acting_master=False, zone_name="SH"))
    assert (fold.group().enable_acting_master, fold.group().zone_name) == (False, "SH")


def test_step_3_absent_means_false_and_no_zone(fold: Fold) -> None:
    fold(register(enable_acting_master=True, zone_name="HZ"))
    fold(register("a1:1", 1))
    assert (fold.group().enable_acting_master, fold.group().zone_name) == (False, None)


def test_step_5_a_slave_that_became_master_has_one_id(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a1:1", 1))
    fold(register("a1:1", 0, version=V2))
    assert fold.addrs() == {0: "a1:1"}


def test_step_5_a_master_that_became_slave_has_one_id(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a0:1", 1, enable_acting_master=True))
    assert fold.addrs() == {1: "a0:1"}


def test_step_6_a_holder_ahead_in_state_version_keeps_the_id(fold: Fold) -> None:
    fold(register("a0:1", version=DataVersion(2, 0, 0)))
    outcome = fold(register("a1:1", version=DataVersion(1, 9, 9)))
    assert (outcome.verdict, outcome.reason) == ("rejected", STATE_VERSION_CONFLICT)
    assert fold.addrs() == {0: "a0:1"}


def test_step_6_the_refused_newcomer_loses_its_own_live_row(fold: Fold) -> None:
    fold(register("a0:1", version=DataVersion(2, 0, 0)))
    fold(register("a1:1", 1))
    assert fold.live() == {("c", "a0:1"), ("c", "a1:1")}
    fold(register("a1:1", 0))
    assert fold.live() == {("c", "a0:1")}
    assert fold.addrs() == {0: "a0:1"}, "step 5 came before: its old id is gone"


@pytest.mark.parametrize("state_version", [1, 2])
def test_step_6_an_equal_or_greater_state_version_takes_the_id(fold: Fold, state_version: int) -> None:
    fold(register("a0:1", version=DataVersion(1, 9, 9)))
    assert fold(register("a1:1", version=DataVersion(state_version, 0, 0))).verdict == "applied"
    assert fold.addrs() == {0: "a1:1"}


def test_step_6_a_holder_without_a_live_row_gives_way(fold: Fold) -> None:
    fold(register("a0:1", version=DataVersion(2, 0, 0)))
    fold(unregister("a0:1", None))  # half an unregistration: the live row goes, the address stays
    assert fold.addrs() == {0: "a0:1"}
    assert fold.live() == set()
    assert fold(register("a1:1")).verdict == "applied"


def test_step_6_only_a_live_row_in_this_cluster_counts(fold: Fold) -> None:
    fold(register("a0:1", version=DataVersion(2, 0, 0)))
    assert fold(register("a1:1", cluster="other")).verdict == "applied"


def test_step_7_one_topic_cannot_create_a_broker(fold: Fold) -> None:
    outcome = fold(register(table=topics("T")))
    assert (outcome.verdict, outcome.reason) == ("rejected", SINGLE_TOPIC_REFUSED)
    assert fold.topics() == {}
    assert fold.live() == set()


def test_step_7_steps_1_to_5_are_not_undone(fold: Fold) -> None:
    fold(register(table=topics("T"), enable_acting_master=True, zone_name="HZ"))
    group = fold.group()
    assert group.known
    assert group.broker_addrs == {}
    assert (group.cluster, group.clusters, group.zone_name) == ("c", frozenset({"c"}), "HZ")


@pytest.mark.parametrize("names", [(), ("T", "U"), ("T", "U", "W")])
def test_step_7_no_topic_or_several_are_fine(fold: Fold, names: tuple[str, ...]) -> None:
    assert fold(register(table=topics(*names))).verdict == "applied"
    assert fold.addrs() == {0: "a0:1"}


def test_step_7_one_topic_updates_a_broker_that_is_there(fold: Fold) -> None:
    fold(register())
    assert fold(register(table=topics("W"), version=V2)).verdict == "applied"
    assert set(fold.topics()) == {"T", "U", "W"}


def test_step_7_hits_a_slave_that_becomes_master_by_one_topic(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a1:1", 1))
    fold(unregister("a0:1"))
    assert fold(register("a1:1", 0, table=topics("T"), version=V2)).reason == SINGLE_TOPIC_REFUSED
    assert fold.addrs() == {}, "step 5 has removed its old id"


def test_step_8_another_address_under_the_same_id_counts_as_changed(fold: Fold) -> None:
    fold(register("a0:1", table=topics("T", "U")))
    fold(register("a1:1", table=topics("T", "U", row=QueueRow(4, 4, 6, 0))))
    assert fold.topics()["T"] == QueueRow(4, 4, 6, 0), "no live row of its own: changed, whatever the version"


def test_step_9_a_slave_beside_a_master_brings_no_topics(fold: Fold) -> None:
    fold(register("a0:1", 0, table=topics("T", "U")))
    fold(register("a1:1", 1, table=topics("X", "Y"), enable_acting_master=True))
    assert set(fold.topics()) == {"T", "U"}
    assert ("c", "a1:1") in fold.live()


def test_step_9_a_slave_alone_brings_topics_with_full_permission(fold: Fold) -> None:
    fold(register("a1:1", 1, enable_acting_master=False))
    assert fold.perms() == {"T": 6, "U": 6}


def test_step_9_a_slave_of_a_release_before_5_never_brings_topics(fold: Fold) -> None:
    fold(register("a1:1", 1, enable_acting_master=None))
    assert fold.topics() == {}


def test_step_9_only_the_smallest_slave_is_prime(fold: Fold) -> None:
    fold(register("a1:1", 1, enable_acting_master=True))
    fold(register("a2:1", 2, table=topics("X", "Y"), enable_acting_master=True))
    assert set(fold.topics()) == {"T", "U"}


def test_step_10_topics_missing_from_a_newer_table_stay(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W")))
    fold(register(table=topics("T", "U"), version=V2))
    assert set(fold.topics()) == {"T", "U", "W"}


def test_step_10_they_go_when_deletion_with_registration_is_on(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W")))
    fold(register(table=topics("T", "U"), delete_absent_topics=True))
    assert set(fold.topics()) == {"T", "U"}


def test_step_10_a_mapping_protects_them(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W")))
    maps = {"T": mapping("T")}
    fold(register(table=topics("T", "U"), delete_absent_topics=True, topic_queue_mapping_info_map=maps))
    assert set(fold.topics()) == {"T", "U", "W"}


def test_step_10_an_incremental_update_then_erases_the_others(fold: Fold) -> None:
    fold(register(table=topics("T", "U")))
    fold(register(table=topics("W"), version=V2, delete_absent_topics=True))
    assert set(fold.topics()) == {"W"}


def test_step_10_rows_it_took_from_another_member_come_back(fold: Fold) -> None:
    """The other member's digest no longer tells the truth, and must be forgotten."""
    fold(register("a0:1", table=topics("T", "U")))
    fold(register("a1:1", table=topics("T", "W"), delete_absent_topics=True))
    assert set(fold.topics()) == {"T", "W"}
    fold(register("a0:1", table=topics("T", "U")))
    assert set(fold.topics()) == {"T", "U", "W"}


def test_step_11_an_equal_version_does_not_overwrite(fold: Fold) -> None:
    fold(register())
    fold(register(table=topics("T", "U", row=QueueRow(4, 4, 4, 0))))
    assert fold.topics()["T"] == ROW


@pytest.mark.parametrize("version", [V0, V2, DataVersion(1, V1.timestamp, V1.counter)])
def test_step_11_any_other_version_overwrites_even_an_older_one(fold: Fold, version: DataVersion) -> None:
    fold(register(version=V1))
    fold(register(table=topics("T", "U", row=QueueRow(4, 4, 4, 0)), version=version))
    assert fold.topics()["T"] == QueueRow(4, 4, 4, 0)


def test_step_11_an_equal_version_adds_what_is_missing(fold: Fold) -> None:
    fold(register())
    fold(register(table=topics("T", "U", "W")))
    assert set(fold.topics()) == {"T", "U", "W"}


def test_step_11_a_wipe_survives_registrations_of_the_same_version(fold: Fold) -> None:
    fold(register())
    fold(wipe())
    assert fold(register()).verdict == "unchanged"
    assert fold.perms() == {"T": 4, "U": 4}
    fold(register(version=V2))
    assert fold.perms() == {"T": 6, "U": 6}


def test_step_11_a_prime_slave_with_acting_master_cannot_be_written_to(fold: Fold) -> None:
    fold(register("a1:1", 1, table=topics("T", "U", row=QueueRow(8, 8, 7, 1)), enable_acting_master=True))
    assert fold.topics()["T"] == QueueRow(8, 8, 5, 1)


def test_step_11_split_registration_only_adds_after_its_first_chunk(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W")))
    changed = QueueRow(4, 4, 6, 0)
    fold(register(table=topics("T", "U", row=changed), version=V2))
    fold(register(table=topics("W", "X", row=changed), version=V2))
    assert fold.topics() == {"T": changed, "U": changed, "W": ROW, "X": changed}


def test_step_12_mappings_are_merged_and_never_removed(fold: Fold) -> None:
    fold(register(topic_queue_mapping_info_map={"T": mapping("T")}))
    fold(register(topic_queue_mapping_info_map={"U": mapping("U")}, version=V2))
    fold(unregister())
    assert set(fold.group().mappings) == {("T", "b"), ("U", "b")}


def test_step_12_an_equal_version_merges_nothing(fold: Fold) -> None:
    fold(register())
    fold(register(topic_queue_mapping_info_map={"T": mapping("T")}))
    assert fold.group().mappings == {}


def test_step_12_the_mappings_own_bname_counts(fold: Fold) -> None:
    fold(register(topic_queue_mapping_info_map={"T": mapping("T", "elsewhere")}))
    assert set(fold.group().mappings) == {("T", "elsewhere")}


def test_step_12_the_last_of_two_groups_that_map_the_same_counts(fold: Fold) -> None:
    """Both keep what they said; the later log offset tells which one RocketMQ would have."""
    mine, theirs = mapping("T", "shared", 1), mapping("T", "shared", 2)
    fold(register(name="b", topic_queue_mapping_info_map={"T": mine}))
    fold(register("a9:1", name="other", topic_queue_mapping_info_map={"T": theirs}))
    fold(register(name="b", topic_queue_mapping_info_map={"T": mine}, version=V2))
    entries = [fold.group(name).mappings[("T", "shared")] for name in ("b", "other")]
    assert max(entries, key=lambda entry: entry.offset).mapping == mine


def test_step_13_the_live_row_of_every_member(fold: Fold) -> None:
    fold(register("a0:1", 0))
    fold(register("a1:1", 1, ha_server_addr="a1:2", heartbeat_timeout_millis=3_000, version=V2))
    live = fold.group().live[("c", "a1:1")]
    assert (live.last_update_ms, live.last_update_offset) == (fold.now_ms, 2)
    assert (live.heartbeat_timeout_ms, live.expire_ms) == (3_000, fold.now_ms + 3_000)
    assert (live.data_version, live.ha_server_addr) == (V2, "a1:2")
    assert fold.group().live[("c", "a0:1")].heartbeat_timeout_ms == DEFAULT_HEARTBEAT_TIMEOUT_MS


def test_step_13_the_same_again_is_unchanged(fold: Fold) -> None:
    fold(register(ha_server_addr="a0:2", zone_name="HZ", filter_server_list=["f:1"]))
    outcome = fold(register(ha_server_addr="a0:2", zone_name="HZ", filter_server_list=["f:1"]), after_ms=30_000)
    assert outcome.verdict == "unchanged"
    assert fold.rows == []
    assert fold.group().live[("c", "a0:1")].last_update_ms == fold.now_ms


def test_step_14_filter_servers_null_empty_and_new(fold: Fold) -> None:
    fold(register(filter_server_list=["f:1", "f:2"]))
    assert fold.group().filter_servers == {("c", "a0:1"): ("f:1", "f:2")}
    fold(register(filter_server_list=None))
    assert fold.group().filter_servers == {("c", "a0:1"): ("f:1", "f:2")}
    fold(register(filter_server_list=["f:3"]))
    assert fold.group().filter_servers == {("c", "a0:1"): ("f:3",)}
    fold(register(filter_server_list=[]))
    assert fold.group().filter_servers == {}


def test_a_row_deleted_in_the_nameserver_comes_back_with_the_same_version(fold: Fold) -> None:
    fold(register())
    fold(delete_topic("T"))
    assert set(fold.topics()) == {"U"}
    assert fold(register()).verdict == "applied"
    assert set(fold.topics()) == {"T", "U"}


# --- registrations without the topics that the gateway left out ---


def test_slim_what_is_known_is_enough(fold: Fold) -> None:
    fold(register())
    assert fold(register(slim=True), after_ms=30_000).verdict == "unchanged"
    assert fold.group().live[("c", "a0:1")].expire_ms == fold.now_ms + 120_000


def test_slim_a_slave_beside_its_master_needs_no_topics(fold: Fold) -> None:
    fold(register())
    fold(register("a1:1", 1))
    assert fold(register("a1:1", 1, slim=True)).verdict == "unchanged"


def _missing_row(fold: Fold) -> None:
    fold(delete_topic("T"))


def _gone(fold: Fold) -> None:
    fold(unregister())


def _other_topics(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W")))


def _newer(fold: Fold) -> None:
    fold(register(version=V2))


def _another_address(fold: Fold) -> None:
    fold(register("a1:1"))


@pytest.mark.parametrize("between", [_missing_row, _gone, _other_topics, _newer])
def test_slim_is_refused_where_topics_are_needed(fold: Fold, between: object) -> None:
    fold(register())
    between(fold)  # type: ignore[operator]
    outcome = fold(register(slim=True))
    assert (outcome.verdict, outcome.reason) == ("rejected", TOPICS_REQUIRED)


@pytest.mark.parametrize("between", [_missing_row, _gone, _other_topics, _newer, _another_address])
@pytest.mark.parametrize("version", [V1, DataVersion()])
@pytest.mark.parametrize("row", [ROW, QueueRow(4, 4, 4, 0)])
def test_slim_then_in_full_is_as_good_as_in_full_at_once(between: object, version: DataVersion, row: QueueRow) -> None:
    slim_first, at_once = Fold(), Fold()
    for fold in (slim_first, at_once):
        fold(register(version=version))
        between(fold)  # type: ignore[operator]
    full = register(table=topics("T", "U", row=row), version=version)
    slim_first(register(table=topics("T", "U", row=row), version=version, slim=True))
    slim_first(full)
    at_once(heartbeat(name="nobody"))  # the same number of events
    at_once(full)
    assert slim_first.group() == at_once.group()


@pytest.mark.parametrize("version", [V1, DataVersion()])
def test_slim_from_a_new_address_of_an_id_then_in_full(version: DataVersion) -> None:
    """A live row that the refused one left behind, with DataVersion zero, would hide that the second is new."""
    slim_first, at_once = Fold(), Fold()
    for fold in (slim_first, at_once):
        fold(register("a0:1", version=version))
    table = topics("T", "U", row=QueueRow(4, 4, 4, 0))
    assert slim_first(register("a1:1", table=table, version=version, slim=True)).reason == TOPICS_REQUIRED
    slim_first(register("a1:1", table=table, version=version))
    at_once(heartbeat(name="nobody"))
    at_once(register("a1:1", table=table, version=version))
    assert slim_first.group() == at_once.group()


def test_slim_refused_still_counts_as_a_sign_of_life(fold: Fold) -> None:
    fold(register())
    fold(delete_topic("T"))
    fold(register(slim=True), after_ms=30_000)
    live = fold.group().live[("c", "a0:1")]
    assert (live.last_update_ms, live.topic_config_digest) == (fold.now_ms, None), "and asks for the topics next time"


def test_slim_does_not_count_for_deletion_with_registration(fold: Fold) -> None:
    """The table itself is needed to know which topics are absent."""
    fold(register())
    assert fold(register(slim=True, delete_absent_topics=True)).reason == TOPICS_REQUIRED


def test_add_after_wipe_gives_exactly_six(fold: Fold) -> None:
    fold(register(table={"T": QueueRow(8, 8, 7, 0), "U": ROW}))
    fold(wipe())
    assert fold.perms() == {"T": 5, "U": 4}
    fold(add())
    assert fold.perms() == {"T": 6, "U": 6}

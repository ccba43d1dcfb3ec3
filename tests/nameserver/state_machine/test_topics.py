# SPDX-License-Identifier: Apache-2.0
"""Topic commands: 205, 327 (reference 2.6), 216, 217 (2.8)."""

from __future__ import annotations

import pytest

from dev.support.events import (
    ROW,
    V2,
    Fold,
    add,
    delete_topic,
    mapping,
    register,
    register_topic,
    topics,
    unregister,
    wipe,
)
from schemas.broker import QueueRow
from schemas.outcomes import UNKNOWN_BROKER


@pytest.fixture
def fold() -> Fold:
    return Fold()


# --- 205, 327 ---


def test_205_clears_only_the_write_bit_and_counts_every_row(fold: Fold) -> None:
    fold(register(table={"T": QueueRow(8, 8, 7, 0), "U": ROW, "W": QueueRow(8, 8, 4, 0)}))
    outcome = fold(wipe())
    assert (outcome.verdict, outcome.result) == ("applied", {"wipeTopicCount": 3})
    assert fold.perms() == {"T": 5, "U": 4, "W": 4}


def test_327_assigns_exactly_6_so_the_inherit_bit_is_lost(fold: Fold) -> None:
    fold(register(table={"T": QueueRow(8, 8, 7, 0), "U": ROW}))
    outcome = fold(add())
    assert (outcome.verdict, outcome.result) == ("applied", {"addTopicCount": 2})
    assert fold.perms() == {"T": 6, "U": 6}


@pytest.mark.parametrize(("command", "count"), [(wipe, "wipeTopicCount"), (add, "addTopicCount")])
def test_205_327_an_unknown_broker_counts_zero(fold: Fold, command: object, count: str) -> None:
    outcome = fold(command("nobody"))  # type: ignore[operator]
    assert (outcome.verdict, outcome.result) == ("unchanged", {count: 0})
    assert fold.state.groups == {}


def test_205_touches_no_other_group(fold: Fold) -> None:
    fold(register())
    fold(register("x0:1", name="x"))
    fold(wipe())
    assert fold.perms("x") == {"T": 6, "U": 6}


# --- 216 ---


def test_216_removes_the_topic_from_every_group(fold: Fold) -> None:
    fold(register())
    fold(register("x0:1", name="x"))
    assert fold(delete_topic("T")).verdict == "applied"
    assert set(fold.topics()) == set(fold.topics("x")) == {"U"}


def test_216_with_a_cluster_only_from_its_brokers(fold: Fold) -> None:
    fold(register(cluster="c"))
    fold(register("x0:1", name="x", cluster="d"))
    fold(delete_topic("T", "d"))
    assert set(fold.topics()) == {"T", "U"}
    assert set(fold.topics("x")) == {"U"}


def test_216_a_cluster_is_whoever_registered_into_it(fold: Fold) -> None:
    fold(register(cluster="c"))
    fold(register("a1:1", 1, cluster="d"))
    fold(delete_topic("T", "d"))
    assert set(fold.topics()) == {"U"}


def test_216_an_empty_cluster_is_none(fold: Fold) -> None:
    fold(register())
    fold(delete_topic("T", ""))
    assert set(fold.topics()) == {"U"}


@pytest.mark.parametrize(("topic", "cluster"), [("nothing", None), ("T", "nowhere")])
def test_216_of_nothing_is_unchanged(fold: Fold, topic: str, cluster: str | None) -> None:
    fold(register())
    assert fold(delete_topic(topic, cluster)).verdict == "unchanged"
    assert set(fold.topics()) == {"T", "U"}


def test_216_keeps_the_static_mapping(fold: Fold) -> None:
    fold(register(topic_queue_mapping_info_map={"T": mapping("T")}))
    fold(delete_topic("T"))
    assert set(fold.group().mappings) == {("T", "b")}


# --- 217 ---


def test_217_puts_a_row_of_a_known_broker(fold: Fold) -> None:
    fold(register())
    row = QueueRow(2, 2, 4, 1)
    assert fold(register_topic("W", row)).verdict == "applied"
    assert fold.topics()["W"] == row


def test_217_replaces_a_row(fold: Fold) -> None:
    fold(register())
    fold(register_topic("T", QueueRow(2, 2, 4, 1)))
    assert fold.topics()["T"] == QueueRow(2, 2, 4, 1)
    assert fold(register_topic("T", QueueRow(2, 2, 4, 1))).verdict == "unchanged"


def test_217_of_an_unknown_broker_is_refused(fold: Fold) -> None:
    outcome = fold(register_topic("W"))
    assert (outcome.verdict, outcome.reason) == ("rejected", UNKNOWN_BROKER)
    assert fold.state.groups == {}


def test_217_an_entry_without_addresses_counts_as_known(fold: Fold) -> None:
    fold(register(table=topics("T")))
    assert fold(register_topic("W")).verdict == "applied"
    assert set(fold.topics()) == {"W"}


def test_217_touches_neither_version_nor_liveness(fold: Fold) -> None:
    fold(register())
    before = fold.group().live
    fold(register_topic("W"), after_ms=1_000)
    assert fold.group().live == before


def test_217_then_a_registration_of_the_same_version_keeps_it(fold: Fold) -> None:
    fold(register())
    fold(register_topic("T", QueueRow(2, 2, 4, 1)))
    fold(register())
    assert fold.topics()["T"] == QueueRow(2, 2, 4, 1)
    fold(register(version=V2))
    assert fold.topics()["T"] == ROW


def test_rows_of_an_entry_without_addresses_go_with_it(fold: Fold) -> None:
    fold(register(table=topics("T")))
    fold(register_topic("W"))
    fold(unregister())
    assert fold.state.groups == {}

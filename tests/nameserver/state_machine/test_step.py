# SPDX-License-Identifier: Apache-2.0
"""What `step` says of an event, and that it says it without doing it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dev.support.events import (
    Fold,
    clock,
    delete,
    delete_topic,
    heartbeat,
    put,
    register,
    register_topic,
    resume,
    topics,
    unregister,
)
from nameserver.state_machine import step as step_module
from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    At,
    BrokerGroup,
    Outcome,
    RouteState,
)
from nameserver.state_machine.step import GroupChange, apply, step
from schemas.events import AnyEvent, DeleteTopic


@pytest.fixture
def fold() -> Fold:
    """Three groups, of which only b has the topic T."""
    fold = Fold()
    for name in ("a", "b", "c"):
        fold(register(f"{name}:1", name=name, table=topics("T", "U") if name == "b" else topics("U", "V")))
    return fold


def copy_of(state: RouteState) -> RouteState:
    return replace(state, groups=dict(state.groups))


@pytest.mark.parametrize(
    "event",
    [
        register("x:1", name="x"),
        heartbeat("b:1"),
        unregister("b:1"),
        delete_topic("U"),
        put("n", "k"),
        clock(),
        resume(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_is_done_before_it_is_applied(fold: Fold, event: AnyEvent) -> None:
    before = copy_of(fold.state)
    done = step(fold.state, event, At(9, 1_100_000))
    assert fold.state == before
    apply(fold.state, done)
    assert fold.state != before
    assert fold.state.now_ms == 1_100_000


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (delete_topic("T"), OUTCOME_APPLIED),
        (delete_topic("V"), OUTCOME_APPLIED),
        (delete_topic("nowhere"), OUTCOME_UNCHANGED),
        (register_topic("T"), OUTCOME_UNCHANGED),
        (register_topic("T", name="z"), Outcome("rejected", "UNKNOWN_BROKER")),
        (heartbeat("b:1"), OUTCOME_UNCHANGED),
        (delete("n", "k"), OUTCOME_UNCHANGED),
        (clock(), OUTCOME_UNCHANGED),
        (resume(), Outcome("applied", result={"gapMillis": 0})),
    ],
)
def test_an_event_has_one_outcome_over_all_groups(fold: Fold, event: AnyEvent, outcome: Outcome) -> None:
    assert fold(event) == outcome


def test_deleting_a_topic_that_nobody_has_is_unchanged_without_any_group() -> None:
    assert Fold()(delete_topic("T")) == OUTCOME_UNCHANGED


def test_a_resume_says_how_long_nobody_listened(fold: Fold) -> None:
    assert fold(resume(), after_ms=3_000).result == {"gapMillis": 3_000}


def test_only_what_changes_is_said(fold: Fold) -> None:
    fold(delete_topic("T"))
    assert [change.after.broker_name for change in fold.changes if isinstance(change, GroupChange)] == ["b"]
    fold(clock())
    assert fold.changes == []


def test_an_event_time_below_one_already_seen_counts_as_that_one(fold: Fold) -> None:
    seen = fold.now_ms
    assert step(fold.state, clock(), At(9, seen - 1_000)).at == At(9, seen)


def test_a_rule_that_raises_has_changed_nothing(fold: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the groups before the one it fails for, nor the time."""
    rule = step_module._GROUP_RULES[DeleteTopic]

    def fail_for_c(group: BrokerGroup, event: DeleteTopic, at: At) -> tuple[BrokerGroup, Outcome]:
        if group.broker_name == "c":
            raise KeyError("a defect")
        return rule(group, event, at)

    monkeypatch.setitem(step_module._GROUP_RULES, DeleteTopic, fail_for_c)
    before = copy_of(fold.state)
    with pytest.raises(KeyError):
        fold(delete_topic("T"), after_ms=1_000)
    assert fold.state == before


def test_an_event_touches_no_group_but_its_own(fold: Fold) -> None:
    before = dict(fold.state.groups)
    fold(heartbeat("b:1"))
    assert {name for name, group in fold.state.groups.items() if group is not before[name]} == {"b"}

# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about the tables, and about rests. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dev.fault_injection.answers import tables_of
from dev.fault_injection.case import Case, Violation, logged_line, of_event
from dev.fault_injection.model_fold import ModelFold


def tables_are_a_replay(case: Case) -> list[Violation]:
    """(f) The tables of the newest epoch equal two independent folds of the log, and the intervals equal the changes."""
    found = []
    evidence = case.evidence
    topics, brokers, kv = case.expected.last_tables
    actual_kv = {key: value for key, value in evidence.kv.items() if value is not None}
    for table, expected, actual in (
        ("topicQueueTable", topics, evidence.topics),
        ("brokerAddrTable", brokers, evidence.brokers),
        ("kvConfigTable", kv, actual_kv),
    ):
        rows: Any = expected
        for key in sorted(rows.keys() | actual.keys(), key=repr):
            if rows.get(key) != actual.get(key):
                message = f"{table}, {key}: {actual.get(key)} in the table, {rows.get(key)} by the model"
                found.append(Violation("tables_are_a_replay", message))
    if evidence.replayed:
        found.append(Violation("tables_are_a_replay", evidence.replayed))
    for what in evidence.unverified:
        found.append(Violation("tables_are_a_replay", f"history verify: {what}"))
    if evidence.intervals:
        found.append(
            Violation("tables_are_a_replay", "the tables of intervals are not the changes", (evidence.intervals,))
        )
    for difference in evidence.live_view_differences:
        found.append(
            Violation("tables_are_a_replay", "a gateway says that its head and the tables differed", (difference,))
        )
    return [*found, *_not_folded(case)]


def _not_folded(case: Case) -> Iterator[Violation]:
    """Yield events up to the fold's last offset that would change the newest epoch: it lacks them."""
    folded, newest = case.record.folded, case.evidence.epochs[-1] if case.evidence.epochs else None
    if folded is None:
        return
    case.judged["folded"] += 1
    model = ModelFold()
    for logged in case.evidence.log:
        if logged.event is None or logged.offset > folded:
            continue
        before = tables_of(model) if newest is None or logged.offset > newest.log_offset else None
        model.take(logged.event, logged.time_ms)
        if before is not None and of_event(logged.event) is not None and before != tables_of(model):
            message = f"said to be folded up to {folded}, and the newest epoch ends before this"
            yield Violation("tables_are_a_replay", message, (logged_line(logged),))


def well_by_itself(case: Case) -> list[Violation]:
    """(g) After each pause of the faults everything is healthy in time, without an operator."""
    found = []
    for number, well_s in enumerate(case.record.rests, 1):
        case.judged["rest"] += 1
        if well_s is None or well_s > case.well_limit_s:
            after = "never" if well_s is None else f"{well_s:.1f} s after a fault, not {case.well_limit_s:.0f}"
            found.append(Violation("well_by_itself", f"rest {number}: all was well {after}"))
    return found

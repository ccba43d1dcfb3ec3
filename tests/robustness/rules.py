# SPDX-License-Identifier: Apache-2.0
"""The judge's rules: each reads a finished run and says what contradicts it. Pure: nothing is asked, nothing is waited for.

======================  =============================================================================================
`once`                  (a) every acknowledged event is on the log, where its answer says, once; in the tables once
`equals_the_model`      (b) an answer is the model's fold up to the offset it names (without one: up to some offset
                        that was on the log by then)
`never_back`            (c) what was acknowledged, or seen, before a question was asked is in its answer
`epochs_never_back`     (c) the same of epochs
`every_epoch_is_told`   (c) who listens to epochs is told each once, in order, and what it changed
`differences`           (d) what is different between two epochs is what the model's tables differ in
`the_past_stays`        (d) an `as_of` of one epoch is answered alike every time, and as the model had it
`stamped`               (e) an event's time is when it came
`clocks_and_resumes`    (e) CLOCK and RESUME come when they should
`expiry`                (e) nobody expires who was heard in time; nobody silent stays
`tables_are_a_replay`   (f) tables = the model's fold = the product's own replay of the log; intervals = changes; the chain
                        of epochs holds; heads agreed with the tables
`well_by_itself`        (g) where faults rest, all is well in so many seconds
`faults_happened`       every kind of fault that was planned hit somebody, and did not itself show what must not be
`refusals`              nobody was told that something is broken, or got what is no answer
`everything_was_asked`  answers of every kind were judged: no part of traffic or judge fell silent
======================  =============================================================================================

With several gateways (c) holds within each of them. Rules about time are in `rules_of_time`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from schemas.events import RegisterBroker
from tests.robustness.answers import Form
from tests.robustness.case import Case, Fingerprint, Violation, kind_of, logged_line, of_entry, told
from tests.robustness.evidence import Logged
from tests.robustness.operations import WRITES
from tests.robustness.record import Entry
from tests.robustness.rules_of_followers import differences, every_epoch_is_told
from tests.robustness.rules_of_run import everything_was_asked, faults_happened, refusals
from tests.robustness.rules_of_time import clocks_and_resumes, expiry, stamped, the_past_stays

_LOOK_BACK: Final = 200
"""Answers before a question, among which the newest epoch is looked for."""

# --- (a) ---


def once(case: Case) -> list[Violation]:
    """(a) Acknowledged: on the log once, with the offset that the answer names, and folded once."""
    found: list[Violation] = []
    sent: dict[Fingerprint, list[Entry]] = defaultdict(list)
    for entry in case.record.entries:
        if entry.operation.kind in WRITES:
            sent[of_entry(entry)].append(entry)
    for fingerprint, entries in sent.items():
        for entry in entries:
            case.judged[f"{entry.operation.kind} {entry.via}"] += entry.acknowledged
        events = case.events_by_fingerprint.get(fingerprint, [])
        acknowledged = [entry for entry in entries if entry.acknowledged]
        if len(acknowledged) > len(events):
            lines = (*map(told, entries), *map(logged_line, events))
            found.append(Violation("once", f"acknowledged {len(acknowledged)} times, {len(events)} on the log", lines))
        offsets = {event.offset for event in events}
        for entry in acknowledged:
            if entry.offset is not None and entry.offset not in offsets:
                what = logged_line(case.expected.written[entry.offset]) if entry.offset in case.expected.written else ""
                found.append(Violation("once", f"it is not at offset {entry.offset}", (told(entry), what)))
    for fingerprint, events in case.events_by_fingerprint.items():
        entries = sent.get(fingerprint, [])
        if _least_requests(events) > len(entries):
            lines = (*map(told, entries), *map(logged_line, events))
            found.append(Violation("once", f"sent {len(entries)} times, {len(events)} on the log", lines))
    for row, count in case.evidence.changes.items():
        if count > 1:
            found.append(Violation("once", f"folded {count} times: {row} in routeChangeTable"))
    for offset in case.evidence.quarantined:
        found.append(Violation("once", f"in quarantine, though every event here is good: offset {offset}"))
    numbers = [epoch.number for epoch in case.evidence.epochs]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(Violation("once", f"epochs are not 1, 2, 3, ...: {numbers}"))
    return found + _commands_folded(case)


def _commands_folded(case: Case) -> list[Violation]:
    """A command that its answer calls applied has its row in the history."""
    folded = {int(row[0]) for row in case.evidence.changes if row[0] not in ("None", "nan")}
    newest = case.evidence.epochs[-1].log_offset if case.evidence.epochs else -1
    return [
        Violation("once", f"applied, and offset {offset} is not in routeChangeTable", (told(entry),))
        for entry, offset in case.places
        if entry.via == "http" and offset <= newest and offset not in folded and _outcome(entry) == "applied"
    ]


def _outcome(entry: Entry) -> str:
    try:
        return str(json.loads(entry.body).get("outcome"))
    except ValueError:
        return ""


def _least_requests(events: list[Logged]) -> int:
    """How few requests these may have come from: one that went down without its topics may go down again with them."""
    count, slim = 0, False
    for logged in events:
        is_slim = isinstance(logged.event, RegisterBroker) and logged.event.topic_config_table is None
        if not (slim and not is_slim):
            count += 1
        slim = is_slim
    return count


# --- (b), (c), (d) ---


def equals_the_model(case: Case) -> list[Violation]:
    """(b) What an answer says is what the model makes of the log up to the offset it names."""
    found = []
    for entry, form in case.reads:
        operation = entry.operation
        if operation.kind == "as-of":
            continue
        if entry.asked.get("reads") == "committed":
            if entry.epoch is None:
                continue
            try:
                expected = case.expected.at_epoch(operation, entry.epoch)
            except LookupError:
                found.append(Violation("equals_the_model", f"there is no epoch {entry.epoch}", (told(entry),)))
                continue
            case.judged[kind_of(entry)] += 1
            if form != expected:
                found.append(_differs(case, entry, form, expected, f"of epoch {entry.epoch}", None))
        elif entry.offset is not None:
            expected = case.expected.at(operation, entry.offset)
            case.judged[kind_of(entry)] += 1
            if form != expected:
                found.append(_differs(case, entry, form, expected, f"at offset {entry.offset}", entry.offset))
        else:
            last = case.ceiling(entry.done_s)
            case.judged[kind_of(entry)] += 1
            if case.expected.first_right(operation, form, -1, last) is None:
                expected = case.expected.at(operation, last)
                found.append(_differs(case, entry, form, expected, f"at any offset up to {last}", last))
    return found


def never_back(case: Case) -> list[Violation]:
    """(c) A head shows what it has acknowledged or shown before the question was asked."""
    found = []
    places: dict[str, int] = {}
    for entry, form in case.head_reads:
        floor = case.floor(entry.sent_s, entry.gateway)
        if entry.offset is not None:
            wanted = max(floor, int(entry.asked.get("wait_for", -1)))
            if entry.offset < wanted:
                message = f"offset {entry.offset}, though {wanted} had been acknowledged or seen before it was asked"
                found.append(Violation("never_back", message, (*_witness(case, entry, wanted), told(entry))))
            continue
        last = case.ceiling(entry.done_s)
        floor = max(floor, places.get(entry.peer, -1))
        place = case.expected.first_right(entry.operation, form, floor, last)
        if place is not None:
            places[entry.peer] = place
        elif case.expected.first_right(entry.operation, form, -1, floor) is not None:
            changes = case.expected.changes(entry.operation, -1, floor)[-1:]
            message = f"older than offset {floor}, which had been acknowledged or seen before it was asked"
            lines = (*_witness(case, entry, floor), *map(logged_line, changes), told(entry))
            found.append(Violation("never_back", message, lines))
    return found


def epochs_never_back(case: Case) -> list[Violation]:
    """(c) A gateway that has shown an epoch shows no earlier one to who asks for the latest afterwards."""
    found = []
    shown: dict[int, list[Entry]] = defaultdict(list)
    for entry, _ in case.reads:
        if entry.asked.get("reads") != "committed" or entry.epoch is None:
            continue
        before = shown[entry.gateway]
        count = bisect_left(before, entry.sent_s, key=lambda other: other.done_s)
        newest = max(before[max(0, count - _LOOK_BACK) : count], key=lambda other: other.epoch or 0, default=None)
        if newest is not None and entry.epoch < (newest.epoch or 0):
            message = f"epoch {entry.epoch}, though {newest.epoch} had been shown before it was asked"
            found.append(Violation("epochs_never_back", message, (told(newest), told(entry))))
        before.append(entry)
    return found


def _differs(case: Case, entry: Entry, form: Form, expected: Form, where: str, offset: int | None) -> Violation:
    """With the events since the answer was right, if it ever was."""
    lines = [told(entry), f"answered: {form}", f"expected: {expected}"]
    if offset is not None:
        since = case.expected.last_right(entry.operation, form, offset)
        changes = case.expected.changes(entry.operation, -1 if since is None else since, offset)
        lines.append(
            "it never was; last changes:" if since is None else f"it was right last at offset {since}; since then:"
        )
        lines += map(logged_line, changes[-2:] if since is None else changes[:3])
    return Violation("equals_the_model", f"not the answer {where}", tuple(lines))


def _witness(case: Case, entry: Entry, offset: int) -> list[str]:
    """Who knew of an offset before this was asked: the last of them."""
    for other, place in reversed(case.places):
        if place == offset and other.done_s <= entry.sent_s:
            return [told(other)]
    for other, _ in reversed(case.head_reads):
        if other.offset == offset and other.done_s <= entry.sent_s:
            return [told(other)]
    return []


# --- (f), (g) ---


def tables_are_a_replay(case: Case) -> list[Violation]:
    """(f) The tables at the newest epoch, by two independent foldings of the log; intervals, by the changes."""
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
    for what in evidence.unproved:
        found.append(Violation("tables_are_a_replay", f"history verify: {what}"))
    if evidence.intervals:
        found.append(
            Violation("tables_are_a_replay", "the tables of intervals are not the changes", (evidence.intervals,))
        )
    for difference in evidence.head_differences:
        found.append(
            Violation("tables_are_a_replay", "a gateway says that its head and the tables differed", (difference,))
        )
    return found


def well_by_itself(case: Case) -> list[Violation]:
    """(g) Where faults rest all is well in time, and nobody had to lift a finger."""
    found = []
    for number, well_s in enumerate(case.record.rests, 1):
        case.judged["rest"] += 1
        if well_s is None or well_s > case.well_limit_s:
            after = "never" if well_s is None else f"{well_s:.1f} s after a fault, not {case.well_limit_s:.0f}"
            found.append(Violation("well_by_itself", f"rest {number}: all was well {after}"))
    return found


OF_THE_RUN: Final = frozenset({"faults_happened", "refusals", "everything_was_asked"})
"""Rules that judge the run itself: not by these alone a defect counts as found."""

RULES: Final[tuple[Callable[[Case], list[Violation]], ...]] = (
    *(once, equals_the_model, never_back, epochs_never_back, the_past_stays),
    *(stamped, clocks_and_resumes, expiry, tables_are_a_replay, well_by_itself),
    *(every_epoch_is_told, differences, faults_happened, refusals, everything_was_asked),
)

# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about answers to reads of today. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Final

from dev.fault_injection.answers import Form
from dev.fault_injection.case import Case, Violation, kind_of, logged_line, told
from dev.fault_injection.record import Entry

_LOOK_BACK: Final = 200
"""Answers before a question, among which the newest epoch is looked for."""


def equals_the_model(case: Case) -> list[Violation]:
    """(b) An answer is that of the model, folded up to the offset that the answer names."""
    found = []
    for entry, form in case.reads:
        operation = entry.operation
        if operation.kind == "as-of":
            continue
        if entry.asked.get("reads") == "committed":
            if entry.epoch is None:
                continue  # `dev.fault_injection.rules_of_headers` says so
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
    """(c) A live view shows everything that it has acknowledged or shown before the request."""
    found = []
    shown: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    """Offsets in answers to requests that name none, by gateway: times, and the greatest offset by then."""
    for entry, form in case.head_reads:
        times, offsets = shown[entry.gateway]
        before = bisect_left(times, entry.sent_s)
        floor = max(case.floor(entry.sent_s, entry.gateway), offsets[before - 1] if before else -1)
        if entry.offset is not None:
            wanted = max(floor, int(entry.asked.get("wait_for", -1)))
            if entry.offset < wanted:
                message = f"offset {entry.offset}, though {wanted} had been acknowledged or seen before it was asked"
                found.append(Violation("never_back", message, (*_witness(case, entry, wanted), told(entry))))
            continue
        last = case.ceiling(entry.done_s)
        place = case.expected.first_right(entry.operation, form, floor, last)
        if place is not None:
            times.append(entry.done_s)
            offsets.append(max(place, offsets[-1] if offsets else -1))
        elif case.expected.first_right(entry.operation, form, -1, floor) is not None:
            changes = case.expected.changes(entry.operation, -1, floor)[-1:]
            message = f"older than offset {floor}, which had been acknowledged or seen before it was asked"
            lines = (*_witness(case, entry, floor), *map(logged_line, changes), told(entry))
            found.append(Violation("never_back", message, lines))
    return found


def epochs_never_back(case: Case) -> list[Violation]:
    """(c) After a gateway has shown an epoch, it shows no earlier one to requests for the latest."""
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
    """Return the last request that knew of an offset before this one was asked."""
    for other, place in reversed(case.places):
        if place == offset and other.done_s <= entry.sent_s:
            return [told(other)]
    for other, _ in reversed(case.head_reads):
        if other.offset == offset and other.done_s <= entry.sent_s:
            return [told(other)]
    return []

# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about the past. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from dev.fault_injection.answers import Form, form_of
from dev.fault_injection.case import NOT_MODIFIED, Case, Violation, kind_of, to_time_ms, told
from dev.fault_injection.record import Entry


def the_past_stays(case: Case) -> list[Violation]:
    """(d) The past does not change: one point in time, asked twice, of any gateway, has the model's answer."""
    found = []
    first: dict[tuple[Any, ...], tuple[Entry, Form]] = {}
    for entry, form in case.reads:
        operation = entry.operation
        if operation.kind != "as-of":
            continue
        moment = entry.asked["as_of"]
        case.judged["as-of again"] += (operation.subject, moment) in first
        before = first.setdefault((operation.subject, moment), (entry, form))
        if before[1] != form:
            found.append(Violation("the_past_stays", "one moment, two answers", (told(before[0]), told(entry))))
        try:
            if operation.by_time:
                expected = case.expected.at_time(operation, to_time_ms(entry))
            else:
                expected = case.expected.at_epoch(operation, int(moment))
        except LookupError:
            if not operation.by_time:
                found.append(Violation("the_past_stays", f"there is no epoch {moment}", (told(entry),)))
            continue
        case.judged[kind_of(entry)] += 1
        if form != expected:
            what = f"not what was at {moment}" if operation.by_time else f"not what epoch {moment} was"
            lines = (told(entry), f"answered: {form}", f"expected: {expected}")
            found.append(Violation("the_past_stays", what, lines))
    return [*found, *_refused(case)]


SOON_S: Final = 30.0
"""Time after which each gateway has an epoch that one of them has shown, in seconds. It may be partitioned."""
_NOT_YET: Final = ("future-epoch", "future-time")


def _refused(case: Case) -> Iterator[Violation]:
    """A point in time that was shown exists. For a while another gateway may answer that it has not reached it yet."""
    shown: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for entry in sorted(case.record.entries, key=lambda entry: entry.done_s):
        if entry.epoch is not None and entry.code in (200, NOT_MODIFIED):
            times, epochs = shown[entry.gateway]
            times.append(entry.done_s)
            epochs.append(max(entry.epoch, epochs[-1] if epochs else 0))
    for entry in case.record.entries:
        if entry.operation.kind != "as-of" or entry.code not in (404, 410):
            continue
        with suppress(LookupError):
            form_of(entry)
            continue
        case.judged["the past refused"] += 1
        kind = json.loads(entry.body).get("type", "").rpartition(":")[2]
        if entry.code == 410 or kind not in _NOT_YET:
            yield Violation("the_past_stays", f"{entry.code}, and all of the past is kept", (told(entry),))
        elif not entry.operation.by_time:
            here, anywhere = (
                max((_newest(shown[gateway], by_s) for gateway in gateways), default=0)
                for gateways, by_s in (([entry.gateway], entry.sent_s), ([*shown], entry.sent_s - SOON_S))
            )
            if int(entry.asked["as_of"]) <= max(here, anywhere):
                yield Violation("the_past_stays", f"epoch {entry.asked['as_of']} had been shown", (told(entry),))


def _newest(shown: tuple[list[float], list[int]], by_s: float) -> int:
    index = bisect_left(shown[0], by_s)
    return shown[1][index - 1] if index else 0

# SPDX-License-Identifier: Apache-2.0
"""Check that a run is valid: planned faults happened, requests were sent and answers judged. Pure.

A judge who has seen nothing finds nothing wrong; these rules refute such a run.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

from dev.fault_injection.case import Case, Violation, kind_of
from dev.fault_injection.effects import FORWARD_MS
from dev.fault_injection.operations import HTTP_READS, REMOTING_READS, REMOTING_WRITES, WRITES
from dev.fault_injection.plan import REST
from schemas.events import Resume

WHOLE_S: Final = 60.0
"""A run of at least so many seconds has time for operations of every kind."""
_MANY: Final = 20
"""Number of requests of a kind from which on some are answered, in a shorter run, too."""
_JUMP_MS: Final = 2_500_000
"""Minimum jump seen in the log's times after a clock went ahead, in milliseconds."""


def faults_happened(case: Case) -> list[Violation]:
    """Each kind of planned fault found a target, and left its traces."""
    found = [
        Violation("faults_happened", f"{fault.kind}: {fault.wrong}", (fault.detail,))
        for fault in case.record.faults
        if fault.wrong
    ]
    found += [
        Violation("faults_happened", f"{fault.kind} found nobody for {fault.waited_s:.0f} s", (str(fault),))
        for fault in case.record.faults
        if fault.waited_s > case.well_limit_s
    ]
    planned: dict[str, int] = case.record.about.get("planned", {})
    hit = Counter(fault.kind for fault in case.record.faults if fault.hit)
    for kind in planned:
        if kind != REST and not hit[kind]:
            said = tuple(fault.detail for fault in case.record.faults if fault.kind == kind)
            found.append(Violation("faults_happened", f"{kind} was planned, and never hit anybody", said))
    found += [
        Violation("faults_happened", "a thread or task of a server died", (line,)) for line in case.evidence.deaths
    ]
    rests = len(case.record.rests)
    if rests < planned.get(REST, 0):
        found.append(Violation("faults_happened", f"{planned[REST]} rests were planned, {rests} came"))
    return found + _clocks_went_ahead(case)


def _clocks_went_ahead(case: Case) -> list[Violation]:
    """Each step ahead is a jump of the log's times, with a RESUME behind it. Kafka's log has Kafka's clock."""
    if case.record.about.get("log") == "kafka":
        return []
    steps = sum(fault.kind == "clock-forward" for fault in case.record.faults)
    log = case.evidence.log
    jumps = sum(
        isinstance(logged.event, Resume) and logged.time_ms - before.time_ms > _JUMP_MS
        for before, logged in pairwise(log)
    )
    case.judged["clock-forward"] += jumps
    if steps == 0 or (jumps and log[-1].time_ms - log[0].time_ms > steps * FORWARD_MS - _JUMP_MS):
        return []
    return [Violation("faults_happened", f"the clock went ahead {steps} times, the log's times {jumps} times")]


def everything_was_asked(case: Case) -> list[Violation]:
    """Every kind of planned read was checked, with at least half of its answers."""
    case.judged["answer"] = len(case.reads)
    asked = Counter(kind_of(entry) for entry in case.record.entries if not entry.is_write)
    wanted = {kind for kind, count in asked.items() if count >= _MANY} | {"rest"}
    about = case.record.about
    if about.get("seconds", 0) >= WHOLE_S * about.get("pace", 1.0):
        wanted |= PROMISED
    answered = Counter(kind_of(entry) for entry, _ in case.reads)
    return [
        Violation("everything_was_asked", f"{kind}: {case.judged[kind] or 'nothing'} of that kind was judged")
        for kind in sorted(wanted)
        if not case.judged[kind] or case.judged[kind] * 2 < answered[kind]
    ]


PROMISED: Final = frozenset(
    {f"{kind} {via}" for kind in WRITES for via in ("remoting", "http")} - {f"{kind} http" for kind in REMOTING_WRITES}
    | {f"{kind} remoting" for kind in REMOTING_READS}
    | {f"{kind} {how}" for kind in HTTP_READS for how in ("http", "wait_for", "committed")}
    | {"route long-poll", "as-of epoch", "as-of time", "as-of again", "clock", "expiry", "rest"}
    | {"event", "event again", "event of a topic", "diff", "listener in time", "folded", "headers", "receipt"}
    | {"registration", "order", "one-way", "connection closed"}
)
"""Kinds of which every run of a minute has some. They are counted by the other rules, which come first."""

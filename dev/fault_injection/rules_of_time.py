# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about the log's times: stamps, CLOCK and RESUME. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median_low
from typing import Final

from dev.fault_injection.case import Case, Violation, logged_line, told
from dev.fault_injection.effects import CLOCKS, FORWARD_MS
from dev.fault_injection.evidence import Logged
from eventlog.stamps import MAX_LEAP_MS
from schemas.events import Clock, Resume

CLOCK_MS: Final = 5_000
"""scanNotActiveBrokerInterval: how late a silent broker may be noticed."""
UNHEARD_MS: Final = 10_000
"""Time without records after which no RESUME is needed: a gateway may have stood still for so long."""
LATE_MS: Final = CLOCK_MS + UNHEARD_MS
BUSY_MS: Final = 2_000
"""Maximum delay by a busy machine, or by a clock that is being corrected."""
_MEDIAN_MS: Final = 6_000
"""Between CLOCKs of one gateway, by the middle of all such times: those that a fault made long are fewer."""
_HARMLESS: Final = frozenset({"kill-fold", "stop-fold", "kill-workers", "second-fold", "cut"})
"""Faults that neither end a gateway, nor let it stand still, nor keep it from the log, nor set its clock."""


def stamped(case: Case) -> list[Violation]:
    """(e) The time of an acknowledged event lies between its request and its answer, by the processes' clock."""
    ahead_s = case.record.about.get("wall_ahead_s")
    if ahead_s is None:
        return []
    found = []
    for entry, offset in case.places:
        logged = case.expected.written.get(offset)
        steps = _steps_ahead(case, entry.sent_s, entry.done_s)
        if logged is None or steps is None:
            continue
        case.judged["stamp"] += 1
        sent_ms, done_ms = ((time_s + ahead_s) * 1000 + steps * FORWARD_MS for time_s in (entry.sent_s, entry.done_s))
        if not sent_ms - BUSY_MS <= logged.time_ms <= done_ms + BUSY_MS:
            message = f"stamped {logged.time_ms}, sent {sent_ms:.0f} and answered {done_ms:.0f}"
            found.append(Violation("stamped", message, (told(entry), logged_line(logged))))
    return [*found, *_old_heads(case, ahead_s)]


def _old_heads(case: Case, ahead_s: float) -> Iterator[Violation]:
    """Yield old live views: if no fault is near, an answer from the live view goes up to a recent CLOCK."""
    for entry, _ in case.head_reads:
        logged = case.expected.written.get(-1 if entry.offset is None else entry.offset)
        steps = _steps_ahead(case, entry.sent_s, entry.done_s)
        if logged is None or steps is None or _after_a_fault(case, entry.sent_s - LATE_MS / 1000, entry.sent_s):
            continue
        case.judged["age of a head"] += 1
        late_ms = (entry.sent_s + ahead_s) * 1000 + steps * FORWARD_MS - logged.time_ms
        if late_ms > LATE_MS:
            message = f"a head whose last event is {late_ms:.0f} ms old"
            yield Violation("stamped", message, (told(entry), logged_line(logged)))


def _steps_ahead(case: Case, begun_s: float, ended_s: float) -> int | None:
    """By how many steps the processes' clocks were ahead meanwhile; None where that is not certain."""
    steps = 0
    for fault in case.record.faults:
        if fault.kind not in CLOCKS:
            continue
        if case.record.about.get("log") == "kafka":
            continue
        if fault.begun_s - BUSY_MS / 1000 <= ended_s and begun_s <= fault.ended_s + BUSY_MS / 1000:
            return None
        steps += fault.kind == "clock-forward" and fault.ended_s < begun_s
    return steps


def _after_a_fault(case: Case, begun_s: float, ended_s: float) -> bool:
    return any(
        fault.kind not in _HARMLESS and fault.begun_s <= ended_s and begun_s <= fault.ended_s + case.well_limit_s
        for fault in case.record.faults
    )


def clocks_and_resumes(case: Case) -> list[Violation]:
    """(e) A CLOCK comes every few seconds while a gateway runs, and a RESUME first after a time without one."""
    found = []
    before, ticked = None, None
    for logged in case.evidence.log:
        is_resume = _says_silence(logged)
        case.judged["clock"] += isinstance(logged.event, Clock)
        case.judged["resume"] += is_resume
        if before is not None and logged.time_ms < before.time_ms:
            found.append(_violation("the log's time goes back", before, logged))
        if (
            before is not None
            and logged.time_ms - before.time_ms > MAX_LEAP_MS
            and case.record.about.get("log") != "kafka"
        ):
            found.append(_violation(f"the log's time leaps by {logged.time_ms - before.time_ms} ms", before, logged))
        if before is not None and logged.time_ms - before.time_ms > LATE_MS and not is_resume:
            message = f"nobody wrote for {logged.time_ms - before.time_ms} ms, and no RESUME says so"
            found.append(_violation(message, before, logged))
        if ticked is not None and logged.time_ms - ticked.time_ms > LATE_MS and not is_resume:
            found.append(_violation(f"no CLOCK for {logged.time_ms - ticked.time_ms} ms", ticked, logged))
            ticked = logged
        if is_resume or isinstance(logged.event, Clock) or ticked is None:
            ticked = logged
        before = logged
    return [*found, *_slow_clocks(case), *_resumes(case), *_in_front(case)]


def _slow_clocks(case: Case) -> Iterator[Violation]:
    last: dict[str, Logged] = {}
    gaps: dict[str, list[int]] = defaultdict(list)
    for logged in case.evidence.log:
        if isinstance(logged.event, Clock) or _says_silence(logged):
            gateway = _gateway(logged)
            if isinstance(logged.event, Clock) and gateway in last:
                gaps[gateway].append(logged.time_ms - last[gateway].time_ms)
            last[gateway] = logged
    for gateway, found in gaps.items():
        if len(found) > 1 and median_low(found) > _MEDIAN_MS:
            yield _violation(f"a CLOCK of {gateway} every {median_low(found)} ms", last[gateway])


def _resumes(case: Case) -> Iterator[Violation]:
    """Check that each RESUME comes at a start, or after silence."""
    last: dict[str, Logged] = {}
    for logged in case.evidence.log:
        gateway = _gateway(logged)
        if isinstance(logged.event, Resume) and logged.event.after_ms is None:
            own = last.get(gateway)
            if own is not None and logged.time_ms - own.time_ms <= UNHEARD_MS and not _may_resume(case, logged):
                message = f"{logged.time_ms - own.time_ms} ms after its gateway's last word, in the middle of all"
                yield _violation(f"a RESUME {message}", own, logged)
        last[gateway] = logged


def _in_front(case: Case) -> Iterator[Violation]:
    """One that counts if it comes late: "late" is what silence is."""
    known: dict[str, int] = {}
    acknowledged = {offset for _, offset in case.places}
    for logged in case.evidence.log:
        event, gateway = logged.event, _gateway(logged)
        if isinstance(event, Resume) and event.after_ms is not None:
            case.judged["resume in front"] += 1
            if gateway in known and event.after_ms < known[gateway] + UNHEARD_MS:
                too_soon_ms = event.after_ms - known[gateway]
                yield _violation(f"it counts {too_soon_ms} ms after its gateway's last word", logged)
            elif event.after_ms > logged.time_ms + UNHEARD_MS + BUSY_MS:
                yield _violation(f"it counts {event.after_ms - logged.time_ms} ms after it was taken", logged)
        if logged.offset in acknowledged or gateway not in known:
            known[gateway] = logged.time_ms


def _says_silence(logged: Logged) -> bool:
    """Return whether an event is a RESUME, except one that counts only if it came late, and came in time."""
    event = logged.event
    return isinstance(event, Resume) and (event.after_ms is None or logged.time_ms > event.after_ms)


def _gateway(logged: Logged) -> str:
    return "" if logged.event is None else logged.event.actor.gateway


def _may_resume(case: Case, logged: Logged) -> bool:
    """Return whether the event's gateway may have started, or stood still, by a fault."""
    from_s, by_s = case.not_before(logged.offset), case.there_by(logged.offset)
    return by_s is None or _after_a_fault(case, from_s, by_s)


def _violation(message: str, *records: Logged) -> Violation:
    return Violation("clocks_and_resumes", message, tuple(map(logged_line, records)))

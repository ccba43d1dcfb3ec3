# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about time: the past, and who is silent for how long. As `tests.robustness.rules`, pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from schemas.events import BrokerHeartbeat, Clock, RegisterBroker, Resume
from tests.robustness.answers import Form
from tests.robustness.case import Case, Violation, kind_of, logged_line, to_time_ms, told
from tests.robustness.record import Entry

CLOCK_MS: Final = 5_000
"""scanNotActiveBrokerInterval: how late a silent broker may be noticed."""
UNHEARD_MS: Final = 10_000
"""Silence of the log up to which no RESUME tells that nobody listened: a gateway may have stood still for so long."""
LATE_MS: Final = CLOCK_MS + UNHEARD_MS
_BUSY_MS: Final = 2_000
"""By how much a busy machine, or one whose clock is being put right, may be late."""
_CLOCKS: Final = {"clock-forward", "clock-back"}


def the_past_stays(case: Case) -> list[Violation]:
    """(d) What was, stays: one moment asked twice, of any gateway, and the model's answer at it."""
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
                expected = {case.expected.at_epoch(operation, int(moment))}
        except LookupError:
            continue
        case.judged[kind_of(entry)] += 1
        if form not in expected:
            what = f"not what was at {moment}" if operation.by_time else f"not what epoch {moment} was"
            lines = (told(entry), f"answered: {form}", *(f"expected: {right}" for right in expected))
            found.append(Violation("the_past_stays", what, lines))
    return found


def stamped(case: Case) -> list[Violation]:
    """(e) An acknowledged event's time lies between its being sent and its being answered, by the wall clock."""
    ahead_s = case.record.about.get("wall_ahead_s")
    if ahead_s is None or any(fault.kind in _CLOCKS for fault in case.record.faults):
        return []
    found = []
    for entry, offset in case.places:
        logged = case.expected.written.get(offset)
        if logged is None:
            continue
        case.judged["stamp"] += 1
        sent_ms, done_ms = (entry.sent_s + ahead_s) * 1000, (entry.done_s + ahead_s) * 1000
        if not sent_ms - _BUSY_MS <= logged.time_ms <= done_ms + _BUSY_MS:
            message = f"stamped {logged.time_ms}, sent {sent_ms:.0f} and answered {done_ms:.0f}"
            found.append(Violation("stamped", message, (told(entry), logged_line(logged))))
    return found


def clocks_and_resumes(case: Case) -> list[Violation]:
    """(e) A CLOCK every few seconds while somebody listens, a RESUME first where nobody did."""
    found = []
    before, ticked = None, None
    for logged in case.evidence.log:
        is_resume = isinstance(logged.event, Resume)
        case.judged["clock"] += isinstance(logged.event, Clock)
        case.judged["resume"] += is_resume
        if before is not None and logged.time_ms - before.time_ms > LATE_MS and not is_resume:
            message = f"nobody wrote for {logged.time_ms - before.time_ms} ms, and no RESUME says so"
            found.append(Violation("clocks_and_resumes", message, (logged_line(before), logged_line(logged))))
        if ticked is not None and logged.time_ms - ticked.time_ms > LATE_MS and not is_resume:
            message = f"no CLOCK for {logged.time_ms - ticked.time_ms} ms"
            found.append(Violation("clocks_and_resumes", message, (logged_line(ticked), logged_line(logged))))
            ticked = logged
        if is_resume or isinstance(logged.event, Clock) or ticked is None:
            ticked = logged
        before = logged
    return found


def expiry(case: Case) -> list[Violation]:
    """(e) By the log's own times: who was heard in time is there, who was not is gone with the next CLOCK."""
    found = _heard_in_time(case)
    model = case.expected.model
    for name, addr, deadline_ms, noticed_ms in model.expired:
        case.judged["expiry"] += 1
        if noticed_ms - deadline_ms > LATE_MS:
            message = f"{name} ({addr}) was past its deadline for {noticed_ms - deadline_ms} ms before anybody noticed"
            found.append(Violation("expiry", message))
    for key, live in model.model.tables.broker_live_table.items():
        late_ms = model.now_ms - live.last_update_timestamp - live.heartbeat_timeout_millis
        if late_ms > LATE_MS:
            found.append(Violation("expiry", f"{key.broker_addr} is past its deadline for {late_ms} ms at the end"))
    expected = Counter((name, deadline_ms) for name, _, deadline_ms, _ in model.expired)
    newest = case.evidence.epochs[-1].watermark_ms if case.evidence.epochs else 0
    for name, time_ms in case.evidence.expired:
        if not expected[name, time_ms]:
            found.append(Violation("expiry", f"{name} expired at {time_ms}, though it was heard in time"))
        expected[name, time_ms] -= 1
    for (name, time_ms), count in expected.items():
        if count > 0 and time_ms < newest - LATE_MS:
            found.append(Violation("expiry", f"{name} was silent at {time_ms}, and the tables say nothing of it"))
    return found


def _heard_in_time(case: Case) -> list[Violation]:
    """By the clock of the clients: nobody was noticed missing whose last acknowledged word was younger than its timeout."""
    found = []
    heard: dict[str, list[tuple[int, Entry]]] = {}
    for entry, offset in case.places:
        broker = entry.operation.broker
        if broker is not None and entry.operation.kind in ("register", "heartbeat"):
            heard.setdefault(broker.addr, []).append((offset, entry))
    for name, addr, noticed_offset in case.expected.noticed:
        by_s = case.there_by(noticed_offset)
        last = max((pair for pair in heard.get(addr, ()) if pair[0] < noticed_offset), default=None, key=lambda p: p[0])
        if by_s is None or last is None:
            continue
        offset, entry = last
        logged = case.expected.written.get(offset)
        if logged is None or not isinstance(logged.event, RegisterBroker | BrokerHeartbeat):
            continue
        assert entry.operation.broker is not None
        timeout_s = (entry.operation.broker.timeout_ms or 120_000) / 1000
        if by_s - entry.sent_s < timeout_s:
            message = (
                f"{name} ({addr}) expired at offset {noticed_offset}, {by_s - entry.sent_s:.1f} s after it was heard"
            )
            found.append(Violation("expiry", message, (told(entry), logged_line(logged))))
    return found

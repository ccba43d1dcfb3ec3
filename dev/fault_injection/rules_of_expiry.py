# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about expiry. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from dev.fault_injection.case import Case, Violation, logged_line, told
from dev.fault_injection.record import Entry
from dev.fault_injection.rules_of_time import LATE_MS
from schemas.events import BrokerHeartbeat, Clock, RegisterBroker


def expiry(case: Case) -> list[Violation]:
    """(e) By the log's times: a broker with heartbeats in time stays, and one without is removed at the next CLOCK."""
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
    epochs = case.evidence.epochs
    expected: Counter[tuple[str, int, int]] = Counter()
    for (name, _, deadline_ms, _), (*_, offset) in zip(model.expired, case.expected.noticed, strict=True):
        place = bisect_left(epochs, offset, key=lambda epoch: epoch.log_offset)
        if place < len(epochs):
            expected[name, deadline_ms + 1, epochs[place].number] += 1
    expired = Counter(case.evidence.expired)
    for name, time_ms, epoch in (expired - expected).elements():
        message = f"{name} expired at {time_ms} in epoch {epoch}, though it was heard in time, or too soon"
        found.append(Violation("expiry", message))
    for name, time_ms, epoch in (expected - expired).elements():
        found.append(Violation("expiry", f"{name} was silent at {time_ms}, and epoch {epoch} says nothing of it"))
    return [*found, *_watermarks(case)]


def _watermarks(case: Case) -> Iterator[Violation]:
    """Each epoch names the event time of the last CLOCK in it."""
    clocks = [(logged.offset, logged.time_ms) for logged in case.evidence.log if isinstance(logged.event, Clock)]
    for epoch in case.evidence.epochs:
        place = bisect_right(clocks, epoch.log_offset, key=itemgetter(0))
        expected_ms = clocks[place - 1][1] if place else 0
        if epoch.watermark_ms != expected_ms:
            message = f"the watermark of epoch {epoch.number} is {epoch.watermark_ms}, and should be {expected_ms}"
            yield Violation("expiry", message)


def _heard_in_time(case: Case) -> list[Violation]:
    """By the clock of the clients: no broker was missing before its timeout after its last acknowledged heartbeat."""
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
        if by_s - entry.sent_s < timeout_s - _behind_s(case, entry):
            message = (
                f"{name} ({addr}) expired at offset {noticed_offset}, {by_s - entry.sent_s:.1f} s after it was heard"
            )
            found.append(Violation("expiry", message, (told(entry), logged_line(logged))))
    return found


def _behind_s(case: Case, heard: Entry) -> float:
    """By how much event time may have been behind: while a clock is set back, it goes on at nine tenths of the pace."""
    return sum(
        (heard.done_s - fault.begun_s) / 10
        for fault in case.record.faults
        if fault.kind == "clock-back" and fault.begun_s <= heard.done_s and heard.sent_s <= fault.ended_s
    )

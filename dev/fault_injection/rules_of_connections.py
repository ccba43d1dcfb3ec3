# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about connections that end: CHANNEL_CLOSED removes the brokers that registered over them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from dev.fault_injection.case import Case, Violation, logged_line, of_entry, told
from dev.fault_injection.effects import AGAIN_S, SILENT, near
from dev.fault_injection.evidence import Logged
from dev.fault_injection.record import Ended, Entry
from schemas.events import ChannelClosed

SOON_S: Final = 15.0
"""In so many seconds a gateway has found out that a connection ended, and has written it down. It takes milliseconds; it
may stand still for three seconds, and machines are busy."""


def connections(case: Case) -> list[Violation]:
    """(a) The log has CHANNEL_CLOSED for each broker of a connection that ended, and for no other."""
    over: dict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(case.record.entries, key=lambda entry: entry.sent_s):
        if entry.via == "remoting" and entry.peer:
            over[entry.peer].append(entry)
    ended: dict[str, list[Ended]] = defaultdict(list)
    for end in case.record.ended:
        ended[end.peer].append(end)
    closed: dict[str, list[Logged]] = defaultdict(list)
    for logged in case.evidence.log:
        if isinstance(logged.event, ChannelClosed):
            closed[logged.event.actor.peer or ""].append(logged)
    return [*_closed_for_nothing(case, over, ended, closed), *_not_closed(case, over, ended, closed)]


def _closed_for_nothing(
    case: Case, over: dict[str, list[Entry]], ended: dict[str, list[Ended]], closed: dict[str, list[Logged]]
) -> Iterator[Violation]:
    """Yield connections that brought an answer after their CHANNEL_CLOSED was known."""
    for peer, events in closed.items():
        alive = [
            max((entry.sent_s for entry in _of(over[peer], ended[peer], end) if entry.code is not None), default=0.0)
            for end in ended[peer]
        ]
        for logged in events:
            case.judged["connection closed"] += 1
            by_s = case.there_by(logged.offset)
            if not alive or (by_s is not None and min(alive) > by_s):
                later = [entry for entry in over[peer] if by_s is not None and entry.sent_s > by_s][:1]
                lines = (logged_line(logged), *map(told, later))
                yield Violation("connections", f"the connection of {peer} had not ended", lines)


def _not_closed(
    case: Case, over: dict[str, list[Entry]], ended: dict[str, list[Ended]], closed: dict[str, list[Logged]]
) -> Iterator[Violation]:
    """A broker registered over a connection that ended while its gateway went on, and stayed."""
    last_s = max((entry.done_s for entry, _ in case.places), default=0.0)
    for peer, ends in ended.items():
        taken = {event.broker_addr for logged in closed[peer] if isinstance(event := logged.event, ChannelClosed)}
        for end in ends:
            entries = _of(over[peer], ends, end)
            alive_s = max((entry.sent_s for entry in entries if entry.code is not None), default=end.time_s)
            late = end.time_s + SOON_S
            if end.why == "over" or late > last_s or near(case, SILENT, end.gateway, alive_s, late, AGAIN_S):
                continue
            case.judged["connection ended"] += 1
            for addr, entry in _bound(case, entries).items():
                if addr not in taken:
                    message = f"{addr} registered over {peer}, which ended, and there is no CHANNEL_CLOSED"
                    yield Violation("connections", message, (told(entry), str(end)))


def _of(entries: list[Entry], ends: list[Ended], end: Ended) -> list[Entry]:
    """Return the requests over a connection: its address may be another's later."""
    before_s = max((other.time_s for other in ends if other.time_s < end.time_s), default=0.0)
    return [entry for entry in entries if before_s <= entry.sent_s <= end.time_s]


def _bound(case: Case, entries: list[Entry]) -> dict[str, Entry]:
    """Address -> the registration that was taken over this connection, with no word of a leave."""
    found: dict[str, Entry] = {}
    left = set()
    for entry in entries:
        broker = entry.operation.broker
        if broker is None:
            continue
        if entry.operation.kind == "unregister":
            left.add(broker.addr)
        elif entry.operation.kind == "register" and entry.acknowledged and of_entry(entry) not in case.refused:
            found[broker.addr] = entry
    return {addr: entry for addr, entry in found.items() if addr not in left}

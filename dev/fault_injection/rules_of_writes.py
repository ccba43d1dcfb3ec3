# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about writes: an acknowledged write is on the log, once, as it was sent, and in time. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from dev.fault_injection.case import Case, Fingerprint, Violation, logged_line, of_entry, of_event, told, told_by
from dev.fault_injection.effects import AGAIN_S, UNWRITABLE, near
from dev.fault_injection.evidence import Logged
from dev.fault_injection.operations import WRITES, Operation
from dev.fault_injection.record import Entry
from schemas.broker import QueueRow
from schemas.events import ChannelClosed, Clock, RegisterBroker, Resume, topic_config_digest

IN_DOUBT_S: Final = 30.0
"""Time after which a write without an answer is on the log, or never comes there, in seconds. A packet that was lost in a
partition is sent again for 26 s, and a process stands still for three."""


def once(case: Case) -> list[Violation]:
    """(a) An acknowledged event is on the log once, with the offset that the answer names, and is folded once."""
    found: list[Violation] = []
    sent: dict[Fingerprint, list[Entry]] = defaultdict(list)
    for entry in case.record.entries:
        if entry.operation.kind in WRITES:
            sent[of_entry(entry)].append(entry)
    for fingerprint, entries in sent.items():
        for entry in entries:
            case.judged[f"{entry.operation.kind} {entry.via}"] += entry.acknowledged
        events = case.events_by_fingerprint.get(fingerprint, [])
        acknowledged = [entry for entry in entries if entry.acknowledged and not _may_come_to_nothing(case, entry)]
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
    for logged in case.evidence.log:
        if logged.event is not None and not isinstance(logged.event, _OF_GATEWAYS) and of_event(logged.event) is None:
            found.append(Violation("once", "nobody sends such a thing", (logged_line(logged),)))
    for row, count in case.evidence.changes.items():
        if count > 1:
            found.append(Violation("once", f"folded {count} times: {row} in routeChangeTable"))
    for offset in case.evidence.quarantined:
        found.append(Violation("once", f"in quarantine, though every event here is good: offset {offset}"))
    numbers = [epoch.number for epoch in case.evidence.epochs]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(Violation("once", f"epochs are not 1, 2, 3, ...: {numbers}"))
    return found + _commands_folded(case)


_OF_GATEWAYS: Final = (Clock, Resume, ChannelClosed)
"""Kinds of events that gateways write by themselves."""


def _may_come_to_nothing(case: Case, entry: Entry) -> bool:
    """A topic of an unknown group is not registered, as in RocketMQ, and the answer is the same."""
    if entry.operation.kind != "register-topic":
        return False
    (group,) = told_by(entry.operation)
    forms = case.expected.forms(group, case.floor(entry.sent_s, entry.gateway), case.ceiling(entry.done_s))
    return any(form is not None and not json.loads(form)["brokerMemberGroup"]["brokerAddrs"] for form in forms)


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
    """Return the minimum number of requests for events: a topicless registration may be repeated with its topics."""
    count, slim = 0, 0
    for logged in events:
        is_slim = isinstance(logged.event, RegisterBroker) and logged.event.topic_config_table is None
        if is_slim or slim == 0:
            count += 1
        slim += 1 if is_slim else -min(slim, 1)
    return count


# --- as it was sent ---


def as_sent(case: Case) -> list[Violation]:
    """(a) A registration is on the log with all that its broker sent. One without topics repeats the known ones."""
    found: list[Violation] = []
    sent: dict[Fingerprint, list[Entry]] = defaultdict(list)
    for entry in case.record.entries:
        if entry.operation.kind == "register":
            sent[of_entry(entry)].append(entry)
    for fingerprint, entries in sent.items():
        events = case.events_by_fingerprint.get(fingerprint, [])
        for logged in events:
            assert isinstance(logged.event, RegisterBroker)
            case.judged["registration"] += 1
            for what in _differences(logged.event, entries[0].operation):
                found.append(Violation("as_sent", what, (told(entries[0]), logged_line(logged))))
        bring = [logged for logged in events if logged.offset not in case.expected.lacking]
        acknowledged = [entry for entry in entries if entry.acknowledged]
        if len(acknowledged) > len(bring):
            message = (
                f"acknowledged {len(acknowledged)} times, and {len(bring)} times on the log with what was not known"
            )
            found.append(Violation("as_sent", message, (*map(told, entries), *map(logged_line, events))))
    return found


def _differences(event: RegisterBroker, operation: Operation) -> Iterator[str]:
    broker = operation.broker
    assert broker is not None
    table = {topic: QueueRow(reads, writes, 6, 0) for topic, (reads, writes) in operation.topics.items()}
    if event.topic_config_table is not None and event.topic_config_table != table:
        yield f"the log has the topics {event.topic_config_table}"
    if event.topic_config_digest != topic_config_digest(table):
        yield "the log has the digest of other topics"
    rest = (
        event.broker_id,
        event.heartbeat_timeout_millis,
        bool(event.enable_acting_master),
        event.ha_server_addr,
        event.filter_server_list or None,
        event.data_version.timestamp,
    )
    wanted = (
        broker.id,
        broker.timeout_ms,
        broker.acting,
        broker.ha_addr,
        None,
        operation.data_version["timestamp"],
    )
    if rest != wanted:
        yield f"the log has {rest}, and {wanted} was sent"


# --- when it was sent ---


def in_order(case: Case) -> list[Violation]:
    """(a) A record was written while its client asked for it, after all that had been acknowledged before."""
    found = []
    asked: dict[Fingerprint, list[Entry]] = defaultdict(list)
    for entry in case.record.entries:
        if entry.is_write:
            asked[of_entry(entry)].append(entry)
    for fingerprint, events in case.events_by_fingerprint.items():
        for logged in events:
            from_s, by_s = case.not_before(logged.offset), case.there_by(logged.offset)
            case.judged["order"] += 1
            if not any(_may_be(entry, from_s, by_s) for entry in asked[fingerprint]) and asked[fingerprint]:
                message = f"written after {from_s:.3f}, and known by {by_s}, when nobody asked for it"
                found.append(Violation("in_order", message, (*map(told, asked[fingerprint][-2:]), logged_line(logged))))
    places: dict[int, Entry] = {}
    for entry, offset in case.places:
        by_s = case.there_by(offset)
        if entry.offset is not None and not _may_be(entry, case.not_before(offset), by_s):
            message = f"at offset {offset}, among what was written before or after it was asked for"
            found.append(Violation("in_order", message, (told(entry),)))
        if entry.offset is not None and places.setdefault(offset, entry) is not entry:
            found.append(Violation("in_order", f"offset {offset} is told twice", (told(places[offset]), told(entry))))
    return [*found, *_one_way(case, asked)]


def _may_be(entry: Entry, from_s: float, by_s: float | None) -> bool:
    """Return whether a request can be the event written between these times."""
    ended_s = entry.done_s + (0.0 if entry.acknowledged else IN_DOUBT_S)
    return ended_s >= from_s and (by_s is None or entry.sent_s <= by_s)


def _one_way(case: Case, asked: dict[Fingerprint, list[Entry]]) -> Iterator[Violation]:
    """Check that a one-way request without a fault, over a connection that answered later, is on the log."""
    answered: dict[str, float] = {}
    for entry in case.record.entries:
        if entry.via == "remoting" and entry.code is not None:
            answered[entry.peer] = max(answered.get(entry.peer, 0.0), entry.sent_s)
    for fingerprint, entries in asked.items():
        sure = [
            entry
            for entry in entries
            if entry.acknowledged
            or (
                entry.operation.one_way
                and answered.get(entry.peer, 0.0) > entry.done_s
                and not near(case, UNWRITABLE, entry.gateway, entry.sent_s, entry.done_s + AGAIN_S, AGAIN_S)
            )
        ]
        ways = [entry for entry in sure if entry.operation.one_way]
        case.judged["one-way"] += len(ways)
        events = case.events_by_fingerprint.get(fingerprint, [])
        if ways and len(sure) > len(events):
            lines = (*map(told, sure), *map(logged_line, events))
            yield Violation(
                "in_order", f"sent {len(sure)} times, some of them one-way, {len(events)} on the log", lines
            )

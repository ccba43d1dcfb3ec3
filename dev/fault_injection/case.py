# SPDX-License-Identifier: Apache-2.0
"""A finished run for the judge: the event of each answer, and the known offsets at each time.

Every later answer of a gateway includes all that it has acknowledged or shown. Another gateway may be a little behind.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from dev.fault_injection.answers import Expected, Form, form_of
from dev.fault_injection.evidence import Epoch, Evidence, Logged
from dev.fault_injection.operations import READS, WRITES, Operation
from dev.fault_injection.record import Entry, Record
from schemas.events import (
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    Clock,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    UnregisterBroker,
    WipeWritePerm,
)

WELL_S: Final = 30.0
LIVE_VIEW_WAIT_S: Final = 10.0
"""After it a gateway acknowledges a write that is durable but not in its live view (GatewaySettings.live_view_wait_s)."""
NOT_MODIFIED: Final = 304

Fingerprint = tuple[str, ...]


def digest_of(tag: str) -> str:
    """Return the digest of the contents in an ETag: it stays the same through epochs that change something else."""
    return tag.rpartition("-")[2].rstrip('"')


@dataclass(frozen=True)
class Violation:
    """A contradiction.

    Attributes:
        rule: name of the function.
        message: what is wrong.
        cut: the shortest part of the history that shows it, a line each.
    """

    rule: str
    message: str
    cut: tuple[str, ...] = ()


@dataclass
class Case:
    """A finished run."""

    record: Record
    evidence: Evidence
    well_limit_s: float = WELL_S
    judged: Counter[str] = field(default_factory=Counter)
    """Comparisons by rules, by kind, so that a silent rule is noticed."""

    @cached_property
    def reads(self) -> list[tuple[Entry, Form]]:
        """Every read with an answer, and its contents, in the order of the answers."""
        found = []
        tagged: dict[tuple[object, ...], Form] = {}
        for entry in sorted(self.record.entries, key=lambda entry: entry.done_s):
            if entry.operation.kind not in READS or entry.code is None:
                continue
            copy = (entry.worker, entry.operation.subject, digest_of(entry.tag))
            try:
                form = tagged[copy] if entry.code == NOT_MODIFIED else form_of(entry)
            except LookupError:
                continue
            if entry.tag:
                tagged[copy] = form
            found.append((entry, form))
        return found

    @cached_property
    def head_reads(self) -> list[tuple[Entry, Form]]:
        """Those from the head."""
        return [
            (entry, form)
            for entry, form in self.reads
            if entry.operation.kind != "as-of" and entry.asked.get("reads") != "committed"
        ]

    @cached_property
    def expected(self) -> Expected:
        """The model's answers."""
        times = {to_time_ms(entry) for entry, _ in self.reads if entry.operation.by_time}
        diffs = [heard for heard in self.record.heard if heard.kind == "diff"]
        epochs = {epoch for heard in diffs for epoch in (heard.epoch, heard.after) if epoch is not None}
        asked = [operation for entry in self.record.entries for operation in told_by(entry.operation)]
        asked += [entry.operation for entry, _ in self.reads]
        return Expected(self.evidence, asked, times, epochs)

    @cached_property
    def epochs(self) -> dict[int, Epoch]:
        """By number."""
        return {epoch.number: epoch for epoch in self.evidence.epochs}

    @cached_property
    def events_by_fingerprint(self) -> dict[Fingerprint, list[Logged]]:
        """Events from clients, by connection and content."""
        found: dict[Fingerprint, list[Logged]] = defaultdict(list)
        for logged in self.evidence.log:
            if logged.event is not None:
                fingerprint = of_event(logged.event)
                if fingerprint is not None:
                    found[fingerprint].append(logged)
        return found

    @cached_property
    def places(self) -> list[tuple[Entry, int]]:
        """Acknowledged writes with a certain place on the log, in the order of their answers."""
        sent = Counter(of_entry(entry) for entry in self.record.entries if entry.operation.kind in WRITES)
        found = []
        for entry in sorted(self.record.entries, key=lambda entry: entry.done_s):
            if entry.operation.kind not in WRITES or not entry.acknowledged:
                continue
            fingerprint = of_entry(entry)
            events = self.events_by_fingerprint.get(fingerprint, [])
            if entry.offset is not None:
                found.append((entry, entry.offset))
            elif sent[fingerprint] == 1 and events:
                found.append((entry, events[-1].offset))
        return found

    @cached_property
    def _seen(self) -> dict[int, tuple[list[float], list[int]]]:
        """Offsets known to be in a gateway's live view, by gateway: times, and the greatest offset by then."""
        seen = [
            (entry.done_s, offset, entry.gateway)
            for entry, offset in self.places
            if _was_shown(entry) and entry.operation.kind not in SIGNS_OF_LIFE
        ]
        seen += [
            (entry.done_s, entry.offset, entry.gateway) for entry, _ in self.head_reads if entry.offset is not None
        ]
        found: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
        for done_s, offset, gateway in sorted(seen):
            times, offsets = found[gateway]
            times.append(done_s)
            offsets.append(max(offset, offsets[-1] if offsets else -1))
        return found

    @cached_property
    def _unsent(self) -> tuple[list[float], list[int]]:
        """Offsets that cannot have been there before a time: times, and the least offset sent at or after it."""
        sent = sorted((entry.sent_s, offset) for entry, offset in self.places)
        least, offsets = 1 << 62, []
        for _, offset in reversed(sent):
            least = min(least, offset)
            offsets.append(least)
        return [sent_s for sent_s, _ in sent], offsets[::-1]

    @cached_property
    def _there(self) -> tuple[list[int], list[float]]:
        """Offsets that an answer named, and the time of the first answer that named it or a later one."""
        told_of = [(offset, entry.done_s) for entry, offset in self.places]
        told_of += [(entry.offset, entry.done_s) for entry, _ in self.head_reads if entry.offset is not None]
        told_of.sort()
        earliest, times = float("inf"), []
        for _, done_s in reversed(told_of):
            earliest = min(earliest, done_s)
            times.append(earliest)
        return [offset for offset, _ in told_of], times[::-1]

    @cached_property
    def _begun(self) -> tuple[list[int], list[float]]:
        """Offsets of writes, and when the latest of those up to there was sent."""
        offsets, times, latest = [], [], float("-inf")
        for offset, sent_s in sorted((offset, entry.sent_s) for entry, offset in self.places):
            latest = max(latest, sent_s)
            offsets.append(offset)
            times.append(latest)
        return offsets, times

    def not_before(self, offset: int) -> float:
        """A time after which this offset was written: an earlier record was sent then."""
        offsets, times = self._begun
        index = bisect_left(offsets, offset)
        return times[index - 1] if index else float("-inf")

    @cached_property
    def refused(self) -> set[Fingerprint | None]:
        """Registrations that the rules refuse, by the model."""
        written = self.expected.written
        return {of_event(event) for offset in self.expected.refused if (event := written[offset].event) is not None}

    @cached_property
    def gateways(self) -> dict[str, int]:
        """The gateways' own names in events -> their numbers."""
        return {
            logged.event.actor.gateway: entry.gateway
            for entry, offset in self.places
            if (logged := self.expected.written.get(offset)) is not None and logged.event is not None
        }

    def there_by(self, offset: int) -> float | None:
        """Return the time by which an offset was certainly there; None if no answer named it or a later one."""
        offsets, times = self._there
        index = bisect_left(offsets, offset)
        return times[index] if index < len(times) else None

    def floor(self, time_s: float, gateway: int) -> int:
        """The greatest offset that a client had seen in a gateway's live view before this time."""
        times, offsets = self._seen[gateway]
        index = bisect_left(times, time_s)
        return offsets[index - 1] if index else -1

    def ceiling(self, time_s: float) -> int:
        """The greatest offset that can have been on the log at this time."""
        times, offsets = self._unsent
        index = bisect_right(times, time_s)
        end = self.evidence.log[-1].offset if self.evidence.log else -1
        return offsets[index] - 1 if index < len(offsets) else end


def told_by(operation: Operation) -> list[Operation]:
    """Reads with answers that are in the answer to a write, or decide its outcome."""
    broker = operation.broker
    match operation.kind:
        case "register":
            assert broker is not None
            return [_members(broker.cluster, broker.name), ORDER_TOPICS]
        case "query-version":
            return [operation]
        case "register-topic":
            return [_members("", operation.ask["brokerName"])]
    return []


def _was_shown(write: Entry) -> bool:
    """Whether the live view had an acknowledged write by its answer.

    HTTP says so. Over remoting, an answer after the whole wait for the live view may say only that the write is durable.
    """
    return bool(write.visible) if write.via == "http" else write.done_s - write.sent_s < LIVE_VIEW_WAIT_S


def _members(cluster: str, name: str) -> Operation:
    return Operation("members", ask={"clusterName": cluster, "brokerName": name})


ORDER_TOPICS: Final = Operation("kv-list", ask={"namespace": "ORDER_TOPIC_CONFIG"})
"""Operation for the order topics, which come with the answer to a registration."""
SIGNS_OF_LIFE: Final = frozenset({"heartbeat", "query-version"})
"""Answered when they are durable, whether a head shows them or not."""


def to_time_ms(entry: Entry) -> int:
    """The time that a question for the past names, ms since 1970."""
    return round(datetime.fromisoformat(entry.asked["as_of"]).timestamp() * 1000)


# --- what is the same ---


def of_entry(entry: Entry) -> Fingerprint:
    """Return the connection and the content of a write, to find it on the log."""
    operation = entry.operation
    kind = "heartbeat" if operation.kind in SIGNS_OF_LIFE else operation.kind
    return (entry.peer, kind, *_content(operation))


def _content(operation: Operation) -> Fingerprint:
    broker = operation.broker
    if broker is None:
        return tuple(operation.ask[name] for name in sorted(operation.ask))
    who = (broker.cluster, broker.name, broker.addr)
    if operation.kind in SIGNS_OF_LIFE:
        return who
    version = (str(operation.state), str(operation.version)) if operation.kind == "register" else ()
    return (*who, str(broker.id), *version)


def of_event(event: AnyEvent) -> Fingerprint | None:
    """The same of an event; None of what a gateway writes by itself."""
    peer = event.actor.peer or ""
    match event:
        case RegisterBroker():
            version = event.data_version
            who = event.cluster_name, event.broker_name, event.broker_addr, str(event.broker_id)
            return (peer, "register", *who, str(version.state_version), str(version.counter))
        case BrokerHeartbeat():
            return (peer, "heartbeat", event.cluster_name, event.broker_name, event.broker_addr)
        case UnregisterBroker():
            who = event.cluster_name, event.broker_name, event.broker_addr, str(event.broker_id)
            return (peer, "unregister", *who)
        case RegisterTopic():
            row = event.queue_data
            said = row.broker_name, str(row.read_queue_nums), event.topic, str(row.write_queue_nums)
            return (peer, "register-topic", *said)
        case DeleteTopic():
            return (peer, "delete-topic", event.topic)
        case WipeWritePerm():
            return (peer, "wipe", event.broker_name)
        case AddWritePerm():
            return (peer, "add-write", event.broker_name)
        case PutKvConfig():
            return (peer, "put-kv", event.key, event.namespace, event.value or "")
        case DeleteKvConfig():
            return (peer, "delete-kv", event.key, event.namespace)
    return None


def kind_of(entry: Entry) -> str:
    """Return the kind of an operation and of its request, for figures."""
    operation, asked = entry.operation, entry.asked
    if operation.kind == "as-of":
        return f"as-of {'time' if operation.by_time else 'epoch'}"
    how = "committed" if asked.get("reads") == "committed" else "wait_for" if "wait_for" in asked else ""
    how = "committed wait_for" if how == "committed" and "wait_for" in asked else how
    how = "long-poll" if "wait" in asked else how
    return f"{operation.kind} {how or entry.via}"


def told(entry: Entry) -> str:
    """An entry as a line."""
    return json.dumps(entry.line(), ensure_ascii=False)


def logged_line(logged: Logged) -> str:
    """An event as a line."""
    what = "CLOCK" if isinstance(logged.event, Clock) else repr(logged.event)
    return f"log {logged.offset} at {logged.time_ms}: {what}"

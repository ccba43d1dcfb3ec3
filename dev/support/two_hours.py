# SPDX-License-Identifier: Apache-2.0
"""Two hours in the life of 30 brokers and 500 topics, and what a plain scan of its events says of them.

Brokers register, go silent and come back, unregister; topics are made later and deleted; permissions are taken and given
back; people and programs do it from different addresses. Generated once, from a seed: the same in every run.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from dev.support import events as make
from dev.support.generated_logs import START_MS, written
from dev.support.naive import all_changes_of
from eventlog.base import LogRecord
from nameserver.state_machine.changes import RowChange, command_name, command_of
from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import apply, step
from schemas.broker import DataVersion, QueueRow
from schemas.events import Actor, Event, decode

MINUTES: Final = 120
ALICE: Final = Actor(gateway="g1", via="http", peer="10.9.0.1:40001", user="alice")
SCRIPT: Final = Actor(gateway="g2", via="remoting", peer="[2001:db8::7]:40002")

E = TypeVar("E", bound=Event)


def by(actor: Actor, event: E) -> E:
    """The same, sent by another user."""
    return msgspec.structs.replace(event, actor=actor)


class _Broker:
    def __init__(self, number: int, topics: list[str]) -> None:
        self.name = f"broker-{number:02}"
        self.cluster = "east" if number < 20 else "west"
        self.addr = f"10.0.0.{number + 1}:10911"
        self.topics = topics
        self.counter = 0
        self.silent_until = 0

    def registration(self) -> Event:
        self.counter += 1
        rows = {topic: QueueRow(4, 4, 6, 0) for topic in self.topics}
        actor = Actor(gateway="g1", via="remoting", peer=f"{self.addr.partition(':')[0]}:5{self.counter:04}")
        event = make.register(
            self.addr,
            name=self.name,
            cluster=self.cluster,
            table=rows,
            version=DataVersion(0, START_MS, self.counter),
            heartbeat_timeout_millis=120_000,
        )
        return by(actor, event)

    def heartbeat(self) -> Event:
        return make.heartbeat(self.addr, name=self.name, cluster=self.cluster)


def two_hours(seed: int = 20) -> list[LogRecord]:
    """The log."""
    rng = random.Random(seed)
    topics = [f"topic-{number:03}" for number in range(500)]
    brokers = [_Broker(number, topics[number * 15 : number * 15 + 45]) for number in range(30)]
    entries: list[tuple[int, Event]] = [(5, broker.registration()) for broker in brokers]
    for minute in range(1, MINUTES + 1):
        left_ms = 60_000
        for broker in rng.sample(brokers, len(brokers)):
            if minute < broker.silent_until:
                continue
            back = minute == broker.silent_until
            if not back and rng.random() < 0.01:
                broker.silent_until = minute + rng.choice((4, 6, 10))  # longer than it may: it expires
                continue
            if rng.random() < 0.01:
                broker.topics = [*broker.topics, f"late-{minute:03}"]
                back = True
            left_ms -= 20
            entries.append((20, broker.registration() if back else broker.heartbeat()))
        for event in _commands(rng, minute, brokers, topics):
            left_ms -= 100
            entries.append((100, event))
        entries.append((left_ms, make.clock()))
    return written(entries)


def _commands(rng: random.Random, minute: int, brokers: list[_Broker], topics: list[str]) -> Iterable[Event]:
    broker = rng.choice(brokers)
    if minute % 7 == 0:
        yield by(ALICE, make.wipe(broker.name))
    if minute % 7 == 3:
        yield by(ALICE, make.add(rng.choice(brokers).name))
    if minute % 10 == 5:
        yield by(SCRIPT, make.delete_topic(rng.choice(topics)))
    if minute % 30 == 12:
        yield by(ALICE, make.put("ORDER_TOPIC_CONFIG", rng.choice(topics), f"{broker.name}:4"))
    if minute == 50:  # every broker of one topic
        for each in brokers:
            if "topic-100" in each.topics:
                yield by(ALICE, make.wipe(each.name))
    if minute == 70:
        yield make.unregister(brokers[29].addr, name=brokers[29].name, cluster=brokers[29].cluster)
        brokers[29].silent_until = MINUTES + 1


@dataclass(frozen=True)
class Change:
    """A changed row, as the events alone have it; ``time_ms`` of an expiry is the deadline."""

    time_ms: int
    command: str
    actor: Actor | None
    table: str
    key: tuple[Any, ...]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass
class Scan:
    """A plain scan of the events by the pure fold, record by record."""

    records: list[LogRecord]
    changes: list[Change] = field(default_factory=list)
    commands: list[tuple[int, str, Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = RouteState()
        for record in self.records:
            event = decode(record.payload)
            self.commands.append((record.event_time_ms, command_name(event), event))
            done = step(state, event, At(record.offset, record.event_time_ms))
            apply(state, done)
            for change in done.changes:
                actor = None if change.event is None else change.event.actor
                self.changes += [
                    Change(
                        change.at.now_ms,
                        command_of(change),
                        actor,
                        row.table.name,
                        row.key,
                        _named(row, row.before),
                        _named(row, row.after),
                    )
                    for row in all_changes_of(change)
                ]

    def rows_at(self, table: str, time_ms: int) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Rows of a table at a time."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for change in self._of(table):
            if change.time_ms <= time_ms:
                found.pop(change.key, None)
                if change.after is not None:
                    found[change.key] = change.after
        return found

    def over_time(self, table: str) -> Iterable[tuple[int, dict[tuple[Any, ...], dict[str, Any]]]]:
        """Each time at which a table changed, and its rows then, which the next one changes."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        by_time: dict[int, list[Change]] = defaultdict(list)
        for change in self._of(table):
            by_time[change.time_ms].append(change)
        for time_ms, changes in by_time.items():
            for change in changes:
                rows.pop(change.key, None)
                if change.after is not None:
                    rows[change.key] = change.after
            yield time_ms, rows

    def write_queues(self) -> dict[str, list[tuple[int, int]]]:
        """topic -> (time, queues that may be written), where that changed; None of a topic that is gone is left out."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        by_time: dict[int, list[Change]] = defaultdict(list)
        for change in self._of("topicQueueTable"):
            by_time[change.time_ms].append(change)
        of_topic: dict[str, Counter[str]] = defaultdict(Counter)
        for time_ms, changes in by_time.items():
            for change in changes:
                rows[change.key] = change.after or {}
                name, topic = change.key
                of_topic[topic][name] = _writable(change.after)
                if change.after is None:
                    del of_topic[topic][name]
            for topic in {change.key[1] for change in changes}:
                found[topic].append((time_ms, sum(of_topic[topic].values()) if of_topic[topic] else -1))
        return found

    def write_kinds(self) -> dict[str, list[tuple[int, str]]]:
        """topic -> (time, kind), where that changed: writable, not writable, or why it was gone."""
        causes = {(each.key[1], each.time_ms): each.command for each in self.changes if each.table == "topicQueueTable"}
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for topic, steps in self.write_queues().items():
            for time_ms, queues in steps:
                lost = causes[topic, time_ms] in ("BROKER_EXPIRED", "UNREGISTER_BROKER")
                gone = "no broker" if lost else "deleted"
                kind = "writable" if queues > 0 else "not writable" if queues == 0 else gone
                if not found[topic] or found[topic][-1][1] != kind:
                    found[topic].append((time_ms, kind))
        return found

    def _of(self, table: str) -> list[Change]:
        """In the order of time: an expiry is noticed late."""
        return sorted((change for change in self.changes if change.table == table), key=lambda change: change.time_ms)


def _writable(row: dict[str, Any] | None) -> int:
    return int(row["writeQueueNums"]) if row is not None and row["perm"] & 2 else 0


def _named(row: RowChange, values: tuple[Any, ...] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(row.table.value_columns, values, strict=True))

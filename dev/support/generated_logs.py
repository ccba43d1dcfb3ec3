# SPDX-License-Identifier: Apache-2.0
"""Generated logs: records as a gateway would write them, with time passing, gaps, and records that are no events.

The events are a fixed assortment over few names, so that a log of thirty records has a history worth telling; Hypothesis
only chooses which, and when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import strategies as st

from dev.support import events as make
from eventlog.base import LogRecord
from schemas.broker import DataVersion, QueueRow
from schemas.events import AnyEvent, Event, RegisterBroker, encode, routing_key

NAMES = ("b", "x", "o'dd %2F/=ü")
TOPICS = ("T", "U", "W", "t'o %/pic")
TIMEOUTS_MS = (1_000, 3_000, 3_000, 60_000, None)
STEPS_MS = (0, 0, 0, 0, 1, 400, 1_500, 3_500, 61_000)
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Gap:
    """No gateway ran for a while, or the log took nothing; ``gateways`` go on together."""

    ms: int
    gateways: int = 1
    after_ms: int | None = None
    """Time after the record before it, from which on a RESUME counts if it comes later still."""


@dataclass(frozen=True)
class Garbage:
    """A record that is no event, or one under a key that is not its own."""

    key: str
    payload: bytes


Entry = Event | Gap | Garbage


def _registration(rng: random.Random) -> RegisterBroker:
    name = rng.choice(NAMES)
    broker_id = rng.choice((0, 0, 0, 1, 1, 2))
    names = rng.choice((TOPICS, TOPICS[:2], TOPICS[1:3], TOPICS[:1], ()))
    gateway = rng.choice(("g1", "g1", "g2"))
    more: dict[str, Any] = {}
    if rng.random() < 0.2:
        topic, bname = rng.choice(TOPICS[:2]), rng.choice((name, "b"))
        more["topic_queue_mapping_info_map"] = {topic: make.mapping(topic, bname, rng.choice((1, 2)))}
    return make.register(
        f"{name}-{rng.choice((broker_id, broker_id, 0))}:1",
        broker_id,
        name=name,
        cluster=rng.choice(("c", "c", "c", "d")),
        table=make.topics(*names, row=rng.choice((make.ROW, QueueRow(4, 4, 7, 1)))),
        version=DataVersion(rng.choice((0, 0, 1)), 1, rng.choice((1, 1, 2))),
        connection=rng.choice((None, "1", "2")),
        gateway=gateway,
        slim=rng.random() < 0.2,
        heartbeat_timeout_millis=rng.choice(TIMEOUTS_MS),
        enable_acting_master=rng.choice((None, True, True, False)),
        zone_name=rng.choice((None, None, "HZ")),
        filter_server_list=rng.choice((None, [], ["f:1"], ["f:1", "f:2"])),
        delete_absent_topics=rng.random() < 0.1,
        **more,
    )


def _assortment(rng: random.Random) -> Iterator[Entry]:
    for _ in range(120):
        yield _registration(rng)
    for name in NAMES:
        for machine in (0, 1, 2):
            addr, cluster = f"{name}-{machine}:1", rng.choice(("c", "c", "d"))
            for gateway in ("g1", "g2"):
                yield make.heartbeat(addr, name=name, cluster=cluster, gateway=gateway)
            yield make.heartbeat(addr, name=name)
            yield make.unregister(addr, rng.choice((machine, machine, None)), name=name, cluster=cluster)
            yield make.closed(addr, rng.choice(("1", "2")), name=name)
            yield make.closed(addr, rng.choice(("1", "2")), name=name, grace_ms=rng.choice((0, 1_000, 10_000)))
        yield from (make.wipe(name), make.add(name))
        yield make.register_topic(rng.choice(TOPICS), name=name)
    for topic in TOPICS:
        yield make.delete_topic(topic)
        yield make.delete_topic(topic, rng.choice(("c", "d", "")))
    for value in ("1", "2", None):
        yield make.put(rng.choice(("n", "ORDER_TOPIC_CONFIG")), rng.choice("kl"), value)
    yield from (make.delete("n", "k"), make.delete("ORDER_TOPIC_CONFIG", "k"), make.delete("nowhere", "k"))
    for _ in range(12):
        yield make.clock()
    for _ in range(5):
        yield from (make.preserve(), make.preserve_end(), make.preserve_end(rng.choice((400, 2_000, 30_000))))
    for ms in (2_000, 70_000):
        yield from (Gap(ms), Gap(ms, gateways=2), Gap(ms, gateways=2, after_ms=10_000))
    yield from (Garbage("b:b", b"garbage"), Garbage("*", b"\x01torn"), Garbage("kv", b""))
    yield Garbage("b:b", encode(make.clock()))
    yield Garbage("*", encode(make.wipe("b")))


ASSORTMENT: tuple[Entry, ...] = tuple(_assortment(random.Random(3)))

logs: st.SearchStrategy[list[LogRecord]] = st.lists(
    st.tuples(st.sampled_from(STEPS_MS), st.sampled_from(ASSORTMENT)), min_size=1, max_size=40
).map(lambda entries: written(entries))


def written(entries: Sequence[tuple[int, Entry]]) -> list[LogRecord]:
    """The log after these entries, each so many ms after the one before; offsets count from 1."""
    records: list[LogRecord] = []
    now_ms = START_MS

    def append(key: str, payload: bytes) -> None:
        records.append(LogRecord(len(records) + 1, now_ms, key, payload))

    for after_ms, entry in entries:
        now_ms += after_ms
        if isinstance(entry, Garbage):
            append(entry.key, entry.payload)
        elif isinstance(entry, Gap):
            previous = records[-1].event_time_ms if records else None
            now_ms += entry.ms
            for number in range(entry.gateways):
                late_ms = None if entry.after_ms is None or previous is None else previous + entry.after_ms
                event = make.resume(f"g{number + 1}", after_ms=late_ms)
                append(routing_key(event), encode(event))
        else:
            other = cast("AnyEvent", entry)  # a list of several kinds is one of their common base
            append(routing_key(other), encode(other))
    return records


JUMPS_MS = (0, 0, 0, 0, -1, -700, -5_000, -3_600_000, -20 * 365 * 86_400_000, 3_000, 3_600_000)


def _jumped(records: list[LogRecord], jumps_ms: list[int]) -> list[LogRecord]:
    return [
        record._replace(event_time_ms=record.event_time_ms + jumps_ms[place % len(jumps_ms)])
        for place, record in enumerate(records)
    ]


jumping_logs = st.builds(_jumped, logs, st.lists(st.sampled_from(JUMPS_MS), min_size=1, max_size=12))
"""Stamped by a clock that jumps forward and back at any record, as Kafka's may."""

cuts: st.SearchStrategy[list[int]] = st.lists(st.sampled_from((1, 1, 2, 3, 5, 8, 40)), min_size=1, max_size=10)
"""Sizes of micro-batches, repeated as often as the log needs."""


def batches(records: Sequence[LogRecord], sizes: Sequence[int]) -> Iterator[list[LogRecord]]:
    """The log in micro-batches."""
    start, turn = 0, 0
    while start < len(records):
        size = sizes[turn % len(sizes)]
        yield list(records[start : start + size])
        start, turn = start + size, turn + 1


def generated(seed: int) -> list[LogRecord]:
    """Sixty records, each a moment after the one before, so that no broker expires."""
    rng = random.Random(seed)
    entries = [entry for entry in ASSORTMENT if not isinstance(entry, Gap)]
    first = make.register("b-0:1", table=make.topics(*TOPICS, row=make.ROW), filter_server_list=["f:1"])
    return written([(1, first), *((rng.choice((1, 2)), rng.choice(entries)) for _ in range(60))])


def time_of(record: LogRecord, more_ms: float = 0) -> str:
    """A record's event time, and so many milliseconds later, in RFC 3339."""
    time = datetime.fromtimestamp(record.event_time_ms / 1000, UTC) + timedelta(milliseconds=more_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

# SPDX-License-Identifier: Apache-2.0
"""A lake made without Spark: the product's own event log, fold and writer, one batch after the other in this process.

For benches that need a large or an old lake and measure what comes after it. `routelake serve` or `gateway` started on
the same data directory goes on from there, as after a restart without a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.benchmarks.harness.shard import OneShard, spool_beside
from eventlog.sqlite.log import SqliteLog
from lake.write.maintenance import SWEEP_INTERVAL_S, Maintenance
from lake.write.writer import LakeWriter
from pipelines.blocks import Record
from schemas.broker import DataVersion, QueueRow
from schemas.events import Actor, AnyEvent, BrokerHeartbeat, RegisterBroker, encode, routing_key, topic_config_digest

ACTOR = Actor(gateway="bench", via="remoting", peer="10.0.0.1:5555")
KEEP_ALIVE_MS = 30 * 24 * 3_600_000
RETENTION_DAYS = 30
_RUN = "bench"


def log_file(data_dir: Path) -> Path:
    """Return the path at which `routelake serve` looks for the event log."""
    return data_dir / "events.db"


def last_offset(data_dir: Path) -> int:
    """Return the offset of the last record in a data directory's event log."""
    log = SqliteLog(log_file(data_dir))
    try:
        return log.end().next_offset - 1
    finally:
        log.close()


class LakeMaker:
    """Writes epochs into a new data directory. Use it as a context manager."""

    def __init__(self, data_dir: Path, *, liveness_interval_s: float = 10.0) -> None:
        """Make log and tables."""
        data_dir.mkdir(parents=True, exist_ok=True)
        self._log = SqliteLog(log_file(data_dir))
        self.writer = LakeWriter(
            data_dir / "lake", retention_days=RETENTION_DAYS, liveness_interval_s=liveness_interval_s, shards=1
        )
        self._maintenance = Maintenance(self.writer.tables, self._log, RETENTION_DAYS, 24.0)
        self._shard = OneShard(spool_beside(data_dir / "lake"), _RUN)
        self._batch_id = 0
        self._next_offset = 0

    def __enter__(self) -> Self:
        """This maker."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self._log.close()

    def hour(self) -> None:
        """Let the hourly housekeeping begin now: a lake that grows faster than by the clock would miss it."""
        self._maintenance._swept_at -= SWEEP_INTERVAL_S

    def append(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Events that no fold applies, as key and payload."""
        self._log.append(entries)

    def batch(self, events: Sequence[AnyEvent]) -> float:
        """One micro-batch; returns the seconds that its commit took."""
        entries = [(routing_key(event), encode(event)) for event in events]
        appended = self._log.append(entries)
        return self._fold(
            [
                Record(at.offset, at.event_time_ms, key, payload)
                for (key, payload), at in zip(entries, appended, strict=True)
            ]
        )

    def follow(self) -> float:
        """One micro-batch of what was appended since the last one, by gateways, too; as `batch`. There must be some."""
        found = self._log.read(self._next_offset)
        return self._fold([Record(each.offset, each.event_time_ms, each.key, each.payload) for each in found])

    def _fold(self, records: Sequence[Record]) -> float:
        batch = self._shard.batch(iter(records), epoch=self.writer.epoch + 1)
        self._next_offset = records[-1].offset + 1
        began = time.perf_counter()
        self.writer.write(_RUN, self._batch_id, batch)
        took = time.perf_counter() - began
        batch.close()
        self._batch_id += 1
        self._maintenance.step(self.writer)
        return took


class Group:
    """A broker group and its topics, as registration events."""

    def __init__(self, number: int, topics: int) -> None:
        """Version 0: queue numbers differ from topic to topic and from group to group."""
        self.name = group_name(number)
        self.addr = f"10.0.{number // 200}.{number % 200 + 1}:10911"
        self.counter = 0
        self.rows = {topic_name(at): _row((4, 8, 16)[(at * 7 + number) % 3]) for at in range(topics)}

    def change(self, topic: str) -> None:
        """One queue more, or back to one."""
        self.rows[topic] = _row(self.rows[topic].write_queue_nums % 16 + 1)
        self.counter += 1

    def event(self) -> RegisterBroker:
        """Its registration."""
        rows = dict(self.rows)
        return RegisterBroker(
            actor=ACTOR,
            cluster_name="c1",
            broker_name=self.name,
            broker_addr=self.addr,
            broker_id=0,
            data_version=DataVersion(0, 1_700_000_000_000, self.counter),
            topic_config_digest=topic_config_digest(rows),
            topic_config_table=rows,
            heartbeat_timeout_millis=KEEP_ALIVE_MS,
        )

    def heartbeat(self) -> BrokerHeartbeat:
        """Its heartbeat."""
        return BrokerHeartbeat(actor=ACTOR, cluster_name="c1", broker_name=self.name, broker_addr=self.addr)


def _row(queues: int) -> QueueRow:
    return QueueRow(queues, queues, 6, 0)


def group_name(number: int) -> str:
    """Name of a broker group."""
    return f"broker-{number:04d}"


def topic_name(number: int) -> str:
    """Name of a topic."""
    return f"topic-{number:05d}"


def write_full(maker: LakeMaker, groups: int, topics: int, per_epoch: int = 20) -> list[Group]:
    """Register all groups, some in each epoch."""
    made = [Group(number, topics) for number in range(groups)]
    for start in range(0, groups, per_epoch):
        maker.batch([group.event() for group in made[start : start + per_epoch]])
    return made

# SPDX-License-Identifier: Apache-2.0
"""Processing of the records of one shard in a micro-batch: apply them to the state, and emit the changes.

This module does not import Spark, and the processor is a thin layer over it. `lake.write.batch` merges the parts of all
shards.

Topics of a shard are loaded from the state store when the state machine needs them. Changed ones are written back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from lake.write.arrow import (
    QUARANTINE_SCHEMA,
    Cause,
    ChangeRows,
    net_operations,
    operations,
    outcome_entry,
    to_ipc,
)
from lake.write.batch import ShardOutput, ShardProgress
from lake.write.shard_files import HistoryFile, TopicFiles
from lake.write.topic_changes import TopicParts
from nameserver.state_machine.changes import changes_of, command_of, is_audited, topic_changes
from nameserver.state_machine.codec import Shard, decode_topics, encode_topics
from nameserver.state_machine.replay import read_event
from nameserver.state_machine.state import At, BrokerGroup, Outcome, TopicRows, TopicTable
from nameserver.state_machine.step import GroupChange, KvChange, apply, step
from pipelines.blocks import Record
from schemas import events
from schemas.errors import EventDecodeError
from schemas.outcomes import QUARANTINED, REJECTED
from schemas.tables import BROKER_LIVE_TABLE, STATE_TABLES

HELD_ROWS: Final = 200_000
"""Number of topics in memory (40 MB) above which a shard spills them. A batch from Kafka is only limited in records,
and a record may be a registration of ten thousand topics."""


@dataclass(slots=True)
class TopicStore:
    """Store of a shard's topics between batches (Spark's MapState, or a dict in tests)."""

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]


class ShardTopics:
    """The topics of one shard in one micro-batch."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store
        self._stored: dict[str, TopicTable] = {}
        self._held_rows = 0

    def table(self, name: str) -> TopicTable:
        """Return the topics of a group from the store. Later writes of this batch do not change the result."""
        stored: bytes | None = None

        def load() -> TopicRows:
            nonlocal stored
            if stored is None:
                stored = self._store.get(name) or encode_topics({})
            rows = decode_topics(stored)
            self._held_rows += len(rows)
            return rows

        table = self._stored[name] = TopicTable(load=load)
        return table

    def met(self, rows: int) -> None:
        """Count rows that an event has brought into memory."""
        self._held_rows += rows

    @property
    def are_many(self) -> bool:
        """Return True if memory has so many rows that `spill` is due."""
        return self._held_rows > HELD_ROWS

    def spill(self, groups: dict[str, BrokerGroup], start: Iterable[BrokerGroup]) -> None:
        """Convert rows in memory to bytes. Changed rows go into the store.

        Args:
            groups: present groups, by name. Spilled groups are replaced by equal ones.
            start: groups at the start of the batch.
        """
        for name, group in groups.items():
            if self._stored.get(name) is not group.topics and group.topics.rows:
                data = encode_topics(group.topics.rows)
                self._store.put(name, data)
                self._stored[name] = TopicTable(load=partial(decode_topics, data))
                groups[name] = replace(group, topics=self._stored[name])
        for group in (*start, *groups.values()):
            group.topics.unload()
        self._held_rows = 0

    def write_back(self, groups: Mapping[str, BrokerGroup]) -> None:
        """Write changed topics to the store, at the end of the batch."""
        for name, group in groups.items():
            if self._stored.get(name) is not group.topics:
                if group.topics.rows:
                    self._store.put(name, encode_topics(group.topics.rows))
                elif name in self._stored:
                    self._store.remove(name)
        for name in self._stored.keys() - groups.keys():
            self._store.remove(name)


_json = msgspec.json.Encoder()
_TABLES = {table.name: table for table in STATE_TABLES}

_CHANGES_PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes of JSON in rows of routeChangeTable that a shard collects in one part."""


class ShardFiles(NamedTuple):
    """Destinations of a shard's part of one micro-batch: Spark and the spool, or data files."""

    output: ShardOutput
    history: HistoryFile
    topics: TopicFiles

    @classmethod
    def in_folder(cls, folder: Path, epoch: int) -> ShardFiles:
        """Files in the spool folder, for the epoch that the batch will become, if it has changes."""
        return cls(ShardOutput(folder), HistoryFile(folder, epoch), TopicFiles(folder))


class ShardFold:
    """Processes the records of one shard in one micro-batch.

    Call `apply` for every record in offset order, then `finish`, then `emit`.

    Args:
        shard_key: grouping key of the shard.
        shard: state of the shard.
        topics: store of its topics.
        run_id: identifier of the driver run.
        files: destinations of the output.
    """

    def __init__(self, shard_key: int, shard: Shard, topics: TopicStore, run_id: str, files: ShardFiles) -> None:
        self._shard_key = shard_key
        self._shard = shard
        self._topics = ShardTopics(topics)
        groups = {name: replace(group, topics=self._topics.table(name)) for name, group in shard.state.groups.items()}
        self._start = replace(shard.state, groups=dict(groups))
        self._state = replace(shard.state, groups=groups)
        self._outbox, self._history_file, self._topic_files = files
        self._few_topics: list[pa.Table] = []
        self._topic_parts = TopicParts(self._few_topics.append, self._history_file)
        self._change_rows = ChangeRows()
        self._outcomes: list[dict[str, Any]] = []
        self._quarantine: list[dict[str, Any]] = []
        self._offset = -1
        self._event_time_ms = 0
        self._full = shard.run_id != run_id
        self._run_id = run_id

    def apply(self, record: Record) -> None:
        """Apply one record. An unreadable record goes into quarantine without other effect.

        Raises:
            OSError: the spool cannot be written. The batch must be repeated.
        """
        self._offset = max(self._offset, record.offset)
        self._event_time_ms = max(self._event_time_ms, record.event_time_ms)
        self._state.now_ms = max(self._state.now_ms, record.before_ms)
        event: events.AnyEvent | None = None
        try:
            event = read_event(record)
            done = step(self._state, event, At(record.offset, record.event_time_ms))
            for change in done.changes:
                self._record(change)
            apply(self._state, done)
            if is_audited(event, done.outcome.verdict):
                self._audit(event, done.at, done.outcome)
        except OSError:
            raise
        except EventDecodeError as error:
            self._put_in_quarantine(record, str(error))
        except Exception as error:
            # A defect of the state machine for one record must not stop the registrations of all brokers.
            self._put_in_quarantine(record, f"{type(error).__name__}: {error}")
            if event is not None:
                at = At(record.offset, max(record.event_time_ms, self._state.now_ms))
                self._audit(event, at, Outcome(REJECTED, QUARANTINED))
        self._state.now_ms = max(self._state.now_ms, record.event_time_ms)
        if self._topics.are_many:
            self._topic_files.write(self._start.groups, self._state.groups)
            self._topics.spill(self._state.groups, self._start.groups.values())

    def finish(self) -> Shard:
        """Write changed topics back, and return the state of the shard to store."""
        self._topics.write_back(self._state.groups)
        self._shard.state, self._shard.run_id = self._state, self._run_id
        return self._shard

    def emit(self) -> Iterable[tuple[str, bytes]]:
        """(kind, payload) rows for the driver: history, operations per table, liveness, outcomes, progress."""
        self._topic_parts.close()
        put = self._outbox.add
        if (history := self._history_file.close()) is not None:
            put("history", _json.encode(history))
        self._topic_files.write(self._start.groups, self._state.groups)
        if partitions := self._topic_files.partitions():
            put("partitions", _json.encode(partitions))
        for name, rows in net_operations(self._start, self._state, full=self._full).items():
            kind = "live" if name == BROKER_LIVE_TABLE.name else f"ops:{name}"
            put(kind, to_ipc(operations(_TABLES[name], rows)))
        self._hand_on_changes()
        if self._outcomes:
            put("outcomes", _json.encode(self._outcomes))
        if self._quarantine:
            put("quarantine", to_ipc(pa.Table.from_pylist(self._quarantine, schema=QUARANTINE_SCHEMA)))
        watermark_ms = self._state.watermark_ms
        progress = ShardProgress(self._shard_key, self._offset, self._event_time_ms, watermark_ms, self._full)
        put("progress", _json.encode(progress))
        return self._outbox.rows()

    def _hand_on_changes(self) -> None:
        if self._few_topics or len(self._change_rows):
            self._outbox.add("changes", to_ipc(pa.concat_tables([*self._few_topics, self._change_rows.table()])))
            self._few_topics.clear()
            self._change_rows = ChangeRows()

    def _record(self, change: GroupChange | KvChange) -> None:
        rows = list(changes_of(change))
        topics = None if isinstance(change, KvChange) else topic_changes(change.before, change.after)
        if not rows and not topics:
            return
        actor = _json.encode(change.event.actor).decode() if change.event is not None else None
        cause = Cause(change.at.offset, change.at.now_ms, command_of(change), actor)
        self._change_rows.add(rows, cause, first_seq=len(topics.topics) if topics else 0)
        if self._change_rows.text_bytes > _CHANGES_PART_BYTES:
            self._hand_on_changes()
        if topics:
            self._topic_parts.add(topics, cause)
            self._topic_files.changed(topics)
            self._topics.met(len(topics.topics))

    def _audit(self, event: events.AnyEvent, at: At, outcome: Outcome) -> None:
        self._outcomes.append(outcome_entry(event, at, outcome))

    def _put_in_quarantine(self, record: Record, error: str) -> None:
        self._quarantine.append(
            {
                "offset": record.offset,
                "eventTime": record.event_time_ms * 1000,
                "key": record.key,
                "error": error,
                "payload": record.payload,
            }
        )

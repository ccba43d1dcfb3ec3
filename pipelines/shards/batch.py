# SPDX-License-Identifier: Apache-2.0
"""What one micro-batch did to one shard, and how the shards' parts become one epoch.

`ShardFold` applies a shard's records to its state and records what changed; `Batch.merge` puts the shards together on
the driver. Neither knows Spark: the processor and foreachBatch are thin shells around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from pipelines.fold.changes import changes_of, command_of, is_audited, topic_changes
from pipelines.fold.codec import Shard, pack_group, unpack_group
from pipelines.fold.replay import read_event
from pipelines.fold.state import At, BrokerGroup, Outcome, RouteState
from pipelines.fold.step import GroupChange, KvChange, apply, apply_expiries, expire_due, step
from pipelines.shards.arrow import (
    OP,
    QUARANTINE_SCHEMA,
    Cause,
    ChangeRows,
    NetChanges,
    command_rows,
    from_ipc,
    operations,
    to_ipc,
)
from pipelines.shards.rows import live_rows, outcome_entry
from pipelines.shards.spool import Outbox, Part, Read, remove, unpack
from pipelines.shards.topic_rows import TopicPart, TopicRows
from pipelines.shards.topics import ShardTopics, TopicStore
from schemas import events
from schemas.errors import EventDecodeError
from schemas.outcomes import QUARANTINED
from schemas.tables import BROKER_LIVE_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE, Table

_json = msgspec.json.Encoder()
_TABLES = {table.name: table for table in STATE_TABLES}

_CHANGES_PART_BYTES: Final = 4 * 1024 * 1024
"""JSON of the rows of routeChangeTable that a shard collects before it hands them on."""


class Record(NamedTuple):
    """One log record as Spark hands it over. ``payload`` is None on a shard that only has to see the time pass."""

    offset: int
    event_time_ms: int
    key: str | None
    payload: bytes | None


class ShardProgress(msgspec.Struct):
    """How far a shard got. ``full`` says that all its live rows were reported, not only the touched ones."""

    shard: int
    offset: int
    event_time_ms: int
    watermark_ms: int
    full: bool


class ShardFold:
    """Folds one shard's part of one micro-batch.

    Call `apply` for every record in offset order (or `expire_due` for a fired timer), then `finish`, then `emit`.

    Args:
        shard_key: the shard.
        shard: its state.
        topics: where its topics are.
        run_id: names the driver run.
        watermark_ms: Spark's.
        spool_dir: for what would be too much to hold or to send (`pipelines.shards.spool`); None holds it.
    """

    def __init__(
        self,
        shard_key: int,
        shard: Shard,
        topics: TopicStore,
        run_id: str,
        watermark_ms: int,
        spool_dir: Path | None = None,
    ) -> None:
        self._shard_key = shard_key
        self._shard = shard
        self._topics = ShardTopics(topics)
        self._watermark_ms = watermark_ms
        groups = {
            packed.broker_name: unpack_group(packed, self._topics.table(packed.broker_name)) for packed in shard.groups
        }
        self._start = dict(groups)
        self._state = RouteState(groups, shard.kv, shard.now_ms, shard.resumed_ms)
        self._outbox = Outbox(spool_dir)
        self._topic_rows = TopicRows(lambda part: self._outbox.add("topics", part))
        self._net = NetChanges()
        self._change_rows = ChangeRows()
        self._outcomes: list[dict[str, Any]] = []
        self._quarantine: list[dict[str, Any]] = []
        self._offset = -1
        self._event_time_ms = 0
        self._full = shard.run_id != run_id
        self._run_id = run_id

    def apply(self, record: Record) -> None:
        """Fold one record. One that cannot be read goes into quarantine and changes nothing.

        Raises:
            OSError: the spool cannot be written; the batch has to be repeated.
        """
        self._offset = max(self._offset, record.offset)
        self._event_time_ms = max(self._event_time_ms, record.event_time_ms)
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
            # A defect in a rule must not stop every broker's registration.
            self._put_in_quarantine(record, f"{type(error).__name__}: {error}")
            if event is not None:
                at = At(record.offset, max(record.event_time_ms, self._state.now_ms))
                self._audit(event, at, Outcome("rejected", QUARANTINED))
        self._topics.spill(self._state.groups, self._start.values())

    def expire_due(self, watermark_ms: int) -> None:
        """Expire every silent group whose deadline lies before the watermark."""
        expiries = expire_due(self._state, watermark_ms)
        for change in expiries:
            self._record(change)
        apply_expiries(self._state, expiries)

    def finish(self) -> Shard:
        """Write back what changed and return the shard to store.

        Topics are written only where they changed.
        """
        state, shard = self._state, self._shard
        self._topics.write_back(state.groups)
        shard.groups = [pack_group(group) for group in state.groups.values()]
        shard.kv = {namespace: dict(entries) for namespace, entries in state.kv.items()}
        shard.now_ms, shard.resumed_ms = state.now_ms, state.resumed_ms
        shard.run_id = self._run_id
        return shard

    def next_expiry_ms(self) -> int | None:
        """Earliest deadline in the shard."""
        deadlines = (group.next_expiry_ms() for group in self._state.groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def emit(self) -> Iterable[tuple[str, bytes]]:
        """(kind, payload) rows for the driver: topics, operations per table, liveness, history, outcomes, progress."""
        for name in self._topic_rows.changed_again():
            nothing = BrokerGroup(name)
            start, end = self._start.get(name, nothing), self._state.groups.get(name, nothing)
            left = topic_changes(start, end)
            if left is not None:
                self._topic_rows.add_net(left)
            start.topics.unload()
            end.topics.unload()
        self._topic_rows.close()
        again = self._topic_rows.changed_again()
        put = self._outbox.add
        if again:
            put("again", _json.encode(again))
        net = self._net.operations()
        net.pop(BROKER_LIVE_TABLE.name, None)  # always reported as liveness, below
        for table_name, ops in net.items():
            put(f"ops:{table_name}", to_ipc(operations(_TABLES[table_name], ops)))
        live = list(live_rows(self._start, self._state.groups, full=self._full))
        if live:
            put("live", to_ipc(operations(BROKER_LIVE_TABLE, live)))
        self._hand_on_changes()
        if self._outcomes:
            put("outcomes", _json.encode(self._outcomes))
        if self._quarantine:
            put("quarantine", to_ipc(pa.Table.from_pylist(self._quarantine, schema=QUARANTINE_SCHEMA)))
        progress = ShardProgress(self._shard_key, self._offset, self._event_time_ms, self._watermark_ms, self._full)
        put("progress", _json.encode(progress))
        return self._outbox.rows()

    def _hand_on_changes(self) -> None:
        if len(self._change_rows):
            self._outbox.add("changes", to_ipc(self._change_rows.table()))
            self._change_rows = ChangeRows()

    def _record(self, change: GroupChange | KvChange) -> None:
        rows = list(changes_of(change))
        topics = None if isinstance(change, KvChange) else topic_changes(change.before, change.after)
        if not rows and not topics:
            return
        actor = _json.encode(change.event.actor).decode() if change.event is not None else None
        cause = Cause(change.at.offset, change.at.now_ms, command_of(change), actor)
        self._net.add(rows)
        self._change_rows.add(rows, cause, first_seq=len(topics.topics) if topics else 0)
        if self._change_rows.text_bytes > _CHANGES_PART_BYTES:
            self._hand_on_changes()
        if topics:
            self._topic_rows.add(topics, cause)
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


@dataclass(slots=True)
class Batch:
    """The shards' parts of one micro-batch, put together. ``operations`` and ``changes`` are without the topics'."""

    topics: list[TopicPart] = field(default_factory=list)
    operations: dict[str, list[pa.Table]] = field(default_factory=dict)
    live: list[pa.Table] = field(default_factory=list)
    changes: list[Read] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[pa.Table] = field(default_factory=list)
    progress: list[ShardProgress] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @classmethod
    def merge(cls, rows: Iterable[tuple[str, bytes]]) -> Batch:
        """Put emitted (kind, payload) rows of all shards together. To be closed.

        A command that went to every shard has one outcome: applied if any shard applied it. A record that went to every
        shard and could not be read is in quarantine once.
        """
        batch = cls()
        by_offset: dict[int, dict[str, Any]] = {}
        quarantined: set[int] = set()
        again: set[str] = set()
        for part in unpack(rows, batch.files):
            batch._take(part, by_offset, quarantined, again)
        for topics in batch.topics:
            topics.leave_net(again)
        batch.outcomes = [by_offset[offset] for offset in sorted(by_offset)]
        if len(batch.quarantine) > 1:
            batch.quarantine = [pa.concat_tables(batch.quarantine).sort_by("offset")]
        return batch

    def _take(self, part: Part, by_offset: dict[int, dict[str, Any]], quarantined: set[int], again: set[str]) -> None:
        if part.kind == "topics":
            self.topics.append(TopicPart(part.read))
        elif part.kind == "changes":
            self.changes.append(part.read)
        elif part.kind == "again":
            again.update(msgspec.json.decode(part.read()))
        elif part.kind.startswith("ops:"):
            self.operations.setdefault(part.kind.removeprefix("ops:"), []).append(from_ipc(part.read()))
        elif part.kind == "live":
            self.live.append(from_ipc(part.read()))
        elif part.kind == "quarantine":
            table = from_ipc(part.read())
            new = [offset not in quarantined for offset in table["offset"].to_pylist()]
            quarantined.update(table["offset"].to_pylist())
            if any(new):
                self.quarantine.append(table.filter(pa.array(new)))
        elif part.kind == "outcomes":
            for entry in msgspec.json.decode(part.read()):
                known = by_offset.setdefault(entry["offset"], entry)
                if known is not entry and entry["outcome"] == "applied":
                    known["outcome"] = "applied"
        else:
            self.progress.append(msgspec.json.decode(part.read(), type=ShardProgress))

    def close(self) -> None:
        """Remove the shards' files, once everything is written."""
        remove(self.files)

    @property
    def is_empty(self) -> bool:
        """Nothing but unchanged heartbeats, so that no epoch is due."""
        return not (self.topics or self.operations or self.changes or self.outcomes or self.quarantine)

    @property
    def has_history(self) -> bool:
        """Whether `history` has any rows."""
        return bool(self.topics or self.changes or self.outcomes)

    def kinds_of(self, table: Table) -> set[str]:
        """The kinds of operations on a state table: i, u, d; empty if there are none."""
        if table is TOPIC_QUEUE_TABLE:
            return set().union(*(part.kinds() for part in self.topics))
        return {op for part in self.operations.get(table.name, ()) for op in part[OP].unique().to_pylist()}

    def operations_of(self, table: Table) -> Iterator[pa.Table]:
        """Operations on a state table, part by part, each made when it is asked for."""
        if table is not TOPIC_QUEUE_TABLE:
            yield from self.operations.get(table.name, ())
            return
        for part in self.topics:
            made = part.operations()
            if made is not None:
                yield made

    def history(self) -> Iterator[pa.Table]:
        """Rows of routeChangeTable without ``epoch``, part by part, each made when it is asked for."""
        for part in self.topics:
            made = part.history()
            if made is not None:
                yield made
        for read in self.changes:
            yield from_ipc(read())
        if self.outcomes:
            yield command_rows(self.outcomes)

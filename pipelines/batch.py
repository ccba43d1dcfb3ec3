"""What one micro-batch did to one shard, and how the shards' parts become one epoch.

`ShardFold` runs the pure fold over a shard's records and collects; `Batch.merge` puts the shards together on the
driver. Neither knows Spark: the processor and foreachBatch are thin shells around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pipelines.fold.changes import RowChange, changes_of, command_of, is_audited, topic_changes
from pipelines.fold.codec import Shard, pack_group, unpack_group
from pipelines.fold.replay import read_event
from pipelines.fold.state import APPLIED, UNCHANGED, At, BrokerGroup, KvTable, Outcome, Verdict
from pipelines.fold.step import GroupChange, KvChange, effects_on, expire, resume_gap_ms, resume_group, step_kv
from pipelines.shard_rows import live_rows, outcome_entry
from pipelines.shard_topics import ShardTopics, TopicStore
from pipelines.tables.arrow import (
    OP,
    QUARANTINE_SCHEMA,
    Cause,
    ChangeRows,
    command_rows,
    from_ipc,
    net_operations,
    operations,
    to_ipc,
)
from pipelines.tables.topic_rows import TopicPart, TopicRows
from schemas import events
from schemas.errors import EventDecodeError
from schemas.outcomes import QUARANTINED
from schemas.tables import BROKER_LIVE_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE, Table

_json = msgspec.json.Encoder()
_TABLES = {table.name: table for table in STATE_TABLES}


class Record(NamedTuple):
    """One log record as Spark hands it over. ``payload`` is None on a shard that only has to see the time pass."""

    offset: int
    event_time_ms: int
    key: str | None
    payload: bytes | None


class Cut(msgspec.Struct):
    """How far a shard got. ``whole`` says that its live rows were reported in full, not only the touched ones."""

    shard: int
    offset: int
    event_time_ms: int
    watermark_ms: int
    whole: bool


class ShardFold:
    """Folds one shard's part of one micro-batch.

    Call `apply` for every record in offset order (or `settle` for a fired timer), then `finish`, then `emit`.
    """

    def __init__(self, shard_key: int, shard: Shard, topics: TopicStore, run_id: str, watermark_ms: int) -> None:
        self._shard_key = shard_key
        self._shard = shard
        self._topics = ShardTopics(topics)
        self._watermark_ms = watermark_ms
        self._groups: dict[str, BrokerGroup] = {
            packed.broker_name: unpack_group(packed, self._topics.table(packed.broker_name)) for packed in shard.groups
        }
        self._start = dict(self._groups)
        self._kv: KvTable = shard.kv
        self._topic_rows = TopicRows()
        self._row_changes: list[RowChange] = []
        self._change_rows = ChangeRows()
        self._outcomes: list[dict[str, Any]] = []
        self._quarantine: list[dict[str, Any]] = []
        self._offset = -1
        self._event_time_ms = 0
        self._whole = shard.run_id != run_id
        self._run_id = run_id

    def apply(self, record: Record) -> None:
        """Fold one record. A record that cannot be read is put aside and changes nothing."""
        self._offset = max(self._offset, record.offset)
        self._event_time_ms = max(self._event_time_ms, record.event_time_ms)
        at = At(record.offset, max(record.event_time_ms, self._shard.now_ms))
        self._shard.now_ms = at.now_ms
        event: events.AnyEvent | None = None
        try:
            event = read_event(record)
            self._fold(event, at)
        except EventDecodeError as error:
            self._put_aside(record, str(error))
        except Exception as error:
            # A defect in a rule must not stop every broker's registration. Rules are pure, and what they say is noted
            # when all of them have spoken: nothing is half done.
            self._put_aside(record, f"{type(error).__name__}: {error}")
            if event is not None:
                self._audit(event, at, Outcome("rejected", QUARANTINED))
        self._topics.put_away(self._groups, self._start.values())

    def _fold(self, event: events.AnyEvent, at: At) -> None:
        match event:
            case events.PutKvConfig() | events.DeleteKvConfig():
                self._note(step_kv(self._kv, event, at))
            case events.Clock():
                self._settle(at.now_ms)
            case events.Resume():
                self._resume(event, at)
            case events.DeleteTopic():
                verdicts = self._step(list(self._groups.values()), event, at, audit=False)
                self._audit(event, at, APPLIED if "applied" in verdicts else UNCHANGED)
            case events.RegisterTopic():
                self._step([self._group(event.queue_data.broker_name)], event, at)
            case _:
                self._step([self._group(event.broker_name)], event, at)

    def settle(self, watermark_ms: int) -> None:
        """Expire every silent group whose deadline lies before the watermark."""
        self._settle(watermark_ms)

    def finish(self) -> Shard:
        """Write back what changed and return the shard to store.

        Topics are written only where they changed.
        """
        self._topics.write_back(self._groups)
        self._shard.groups = [pack_group(group) for group in self._groups.values()]
        self._shard.kv = {namespace: dict(entries) for namespace, entries in self._kv.items()}
        self._shard.run_id = self._run_id
        return self._shard

    def next_expiry_ms(self) -> int | None:
        """Earliest deadline in the shard."""
        deadlines = (group.next_expiry_ms() for group in self._groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def emit(self) -> Iterable[tuple[str, bytes]]:
        """(kind, payload) rows for the driver: topics, operations per table, liveness, history, outcomes, cut."""
        for name in self._topic_rows.changed_again():
            nothing = BrokerGroup(name)
            start, end = self._start.get(name, nothing), self._groups.get(name, nothing)
            left = topic_changes(start, end)
            if left is not None:
                self._topic_rows.add_net(left)
            start.topics.unload()
            end.topics.unload()
        for part in self._topic_rows.parts():
            yield "topics", part
        net = net_operations(self._row_changes)
        net.pop(BROKER_LIVE_TABLE.name, None)  # always reported as liveness, below
        for table_name, ops in net.items():
            yield f"ops:{table_name}", to_ipc(operations(_TABLES[table_name], ops))
        live = list(live_rows(self._start, self._groups, whole=self._whole))
        if live:
            yield "live", to_ipc(operations(BROKER_LIVE_TABLE, live))
        if len(self._change_rows):
            yield "changes", to_ipc(self._change_rows.table())
        if self._outcomes:
            yield "outcomes", _json.encode(self._outcomes)
        if self._quarantine:
            yield "quarantine", to_ipc(pa.Table.from_pylist(self._quarantine, schema=QUARANTINE_SCHEMA))
        cut = Cut(self._shard_key, self._offset, self._event_time_ms, self._watermark_ms, self._whole)
        yield "cut", _json.encode(cut)

    def _group(self, name: str) -> BrokerGroup:
        return self._groups.get(name) or BrokerGroup(name)

    def _settle(self, now_ms: int) -> None:
        for change in [change for group in self._groups.values() for change in expire(group, now_ms)]:
            self._note(change)

    def _step(self, groups: list[BrokerGroup], event: events.AnyEvent, at: At, *, audit: bool = True) -> list[Verdict]:
        effects = [effects_on(group, event, at) for group in groups]
        for change in chain.from_iterable(effects):
            self._note(change, audit=audit)
        return [changes[-1].outcome.verdict for changes in effects]

    def _resume(self, event: events.Resume, at: At) -> None:
        if event.previous_event_time_ms is not None:
            self._settle(min(event.previous_event_time_ms, at.now_ms))
        gap_ms = resume_gap_ms(self._shard.resumed_ms, event, at)
        self._groups = {name: resume_group(group, event, gap_ms) for name, group in self._groups.items()}
        self._shard.resumed_ms = at.now_ms
        self._audit(event, at, Outcome("applied", result={"gapMillis": gap_ms}))

    def _note(self, change: GroupChange | KvChange, *, audit: bool = True) -> None:
        rows = list(changes_of(change))
        topics = None if isinstance(change, KvChange) else topic_changes(change.before, change.after)
        if rows or topics:
            actor = _json.encode(change.event.actor).decode() if change.event is not None else None
            cause = Cause(change.at.offset, change.at.now_ms, command_of(change), actor)
            self._row_changes.extend(rows)
            self._change_rows.add(rows, cause, first_seq=len(topics.topics) if topics else 0)
            if topics:
                self._topic_rows.add(topics, cause)
                self._topics.met(len(topics.topics))
        if isinstance(change, KvChange):
            self._kv = change.after
        elif change.after.empty:
            self._groups.pop(change.after.broker_name, None)
        else:
            self._groups[change.after.broker_name] = change.after
        if audit and change.event is not None and is_audited(change.event, change.outcome.verdict):
            self._audit(change.event, change.at, change.outcome)

    def _audit(self, event: events.AnyEvent, at: At, outcome: Outcome) -> None:
        self._outcomes.append(outcome_entry(event, at, outcome))

    def _put_aside(self, record: Record, error: str) -> None:
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
    changes: list[pa.Table] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[pa.Table] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)

    @classmethod
    def merge(cls, parts: Iterable[tuple[str, bytes]]) -> Batch:
        """Put emitted (kind, payload) rows of all shards together.

        A command that went to every shard has one outcome: applied if any shard applied it. A record that went to every
        shard and could not be read is put aside once.
        """
        batch = cls()
        by_offset: dict[int, dict[str, Any]] = {}
        put_aside: set[int] = set()
        for kind, payload in parts:
            if kind == "topics":
                batch.topics.append(TopicPart(payload))
            elif kind.startswith("ops:"):
                batch.operations.setdefault(kind.removeprefix("ops:"), []).append(from_ipc(payload))
            elif kind == "live":
                batch.live.append(from_ipc(payload))
            elif kind == "changes":
                batch.changes.append(from_ipc(payload))
            elif kind == "quarantine":
                part = from_ipc(payload)
                new = [offset not in put_aside for offset in part["offset"].to_pylist()]
                put_aside.update(part["offset"].to_pylist())
                if any(new):
                    batch.quarantine.append(part.filter(pa.array(new)))
            elif kind == "outcomes":
                for entry in msgspec.json.decode(payload):
                    known = by_offset.setdefault(entry["offset"], entry)
                    if known is not entry and entry["outcome"] == "applied":
                        known["outcome"] = "applied"
            else:
                batch.cuts.append(msgspec.json.decode(payload, type=Cut))
        batch.outcomes = [by_offset[offset] for offset in sorted(by_offset)]
        if len(batch.quarantine) > 1:
            batch.quarantine = [pa.concat_tables(batch.quarantine).sort_by("offset")]
        return batch

    @property
    def quiet(self) -> bool:
        """Nothing but unchanged heartbeats, so that no epoch is due."""
        return not (self.topics or self.operations or self.changes or self.outcomes or self.quarantine)

    @property
    def tells(self) -> bool:
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
        yield from self.changes
        if self.outcomes:
            yield command_rows(self.outcomes)

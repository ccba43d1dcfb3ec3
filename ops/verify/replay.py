# SPDX-License-Identifier: Apache-2.0
"""Check that a replay of the event log, from an old epoch or from an empty state, gives the rows of the tables.

If the event log is complete, a replay begins with an empty state. Otherwise it begins at the oldest epoch with readable
tables, for which the event log has every later record and this version of the state machine made every later epoch.
If the fold deletes records of the event log meanwhile, the replay begins once more, at a later epoch.

Columns that every heartbeat changes are written some seconds late. So a row of brokerLiveTable may equal any of its
states since the livenessOffset of the epoch.

The broker groups are replayed one part after the other, because no rule of the state machine reads two of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from deltalake.exceptions import DeltaError

from eventlog.base import LogReader, LogRecord, in_time, lacks
from lake.delta.log import DamagedTableError
from lake.delta.reader import table_at
from lake.view_loader import changes_from
from lake.write.shards import shard_keys, shard_of
from nameserver.state_machine.replay import read_event
from nameserver.state_machine.rows import kv_rows, rows_of
from nameserver.state_machine.state import At, BrokerGroup, RouteState, TopicTable
from nameserver.state_machine.step import GroupChange, apply, step
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from nameserver.view.conversions import state_of
from nameserver.view.snapshot import RouteView
from ops.verify.causes import Causes
from ops.verify.report import Proof, VerifyReport
from schemas.broker import QueueRow
from schemas.errors import EventDecodeError, RoutelakeError, one_line
from schemas.events import KEY_EVERYTHING, KEY_KV, broker_key
from schemas.route_commit import NO_COMMIT, RouteCommit, to_ms
from schemas.tables import (
    BROKER_LIVE_TABLE,
    KV_CONFIG_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_TABLE,
    Table,
)

_UNREADABLE: Final = (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException)

Tables = dict[str, pds.Dataset]
"""The state tables of an epoch, by name."""


class Base(NamedTuple):
    """An epoch and its tables. For an empty state, `NO_COMMIT` and None."""

    commit: RouteCommit
    tables: Tables | None


def find_base(proof: Proof, oldest: int) -> Base:
    """Find the oldest possible start of a replay.

    Args:
        proof: proof with the lake and its epochs. The replay ends with the last epoch.
        oldest: first offset of the event log.

    Raises:
        RoutelakeError: no replay is possible.
    """
    last = proof.last
    other = [commit.epoch for commit in proof.commits if commit.rules_version != STATE_MACHINE_VERSION]
    if not other and oldest <= 1:
        return Base(NO_COMMIT, None)
    folded_by_others = max(other, default=0)
    if folded_by_others == last.epoch:
        raise _NotVerifiedError(
            f"epoch {last.epoch} was made by other rules (version {last.rules_version}; here they are version "
            f"{STATE_MACHINE_VERSION})"
        )
    candidates = [
        commit
        for commit in proof.commits
        if commit.is_exact and commit.log_offset + 1 >= oldest and folded_by_others <= commit.epoch < last.epoch
    ]
    # Retention deletes the oldest versions first, so all epochs from some epoch on are readable.
    place = bisect_left(candidates, True, key=lambda commit: _tables(proof.lake_dir, commit) is not None)
    for commit in candidates[place:]:
        tables = _tables(proof.lake_dir, commit)
        if tables is not None:
            return Base(commit, tables)
    raise _NotVerifiedError(f"no epoch to begin with is left, because the event log begins at offset {oldest}")


def _tables(lake_dir: str, commit: RouteCommit) -> Tables | None:
    """The state tables of an epoch, or None if a file is missing."""
    try:
        tables = {table.name: table_at(lake_dir, table, commit.versions[table.name]) for table in STATE_TABLES}
    except _UNREADABLE:
        return None
    are_there = all(Path(lake_dir, name, file).exists() for name, table in tables.items() for file in table.files)
    return tables if are_there else None


_ROWS_IN_A_PART: Final = 300_000
"""Maximum rows of topicQueueTable in one part of the broker groups."""
_PARTS: Final = (1, 2, 4, 8, 16)
_UNLOAD_EVERY: Final = 1_000
"""Number of records after which unchanged topics are removed from memory."""

_LEFT_OUT: Final = 8
"""Share of the event log, as a divisor, that a second replay leaves out, because the fold may delete it meanwhile."""

_Values = tuple[Any, ...]
_Rows = dict[_Values, _Values]

_SMALL: Final = tuple(table for table in STATE_TABLES if table not in (KV_CONFIG_TABLE, TOPIC_QUEUE_TABLE))


def check_replay(proof: Proof, log: LogReader | None) -> None:
    """Replay up to the last epoch, and compare.

    Args:
        proof: proof that collects the results. Differing rows of its broken epochs are named.
        log: the event log, or None without one.

    Raises:
        DamagedTableError, DeltaError, OSError, pyarrow.ArrowException: the epoch's tables cannot be read.
    """
    last, refuted = proof.last, proof.report.refutations
    try:
        if log is None:
            raise _NotVerifiedError("there is no event log")
        oldest = log.kept_from(0)
        newest = log.read(last.log_offset, 1)
        if not newest or (newest[0].offset != last.log_offset and last.log_offset >= oldest):
            raise _NotVerifiedError(
                f"the event log has no record of offset {last.log_offset}, which epoch {last.epoch} ends with"
            )
        try:
            base = find_base(proof, oldest)
            _run(proof, log, base)
        except _DeletedError:
            if proof.report.refutations != refuted:
                raise
            oldest = log.kept_from(0)
            oldest += (last.log_offset - oldest) // _LEFT_OUT
            base = find_base(proof, oldest)
            _run(proof, log, base)
    except (RoutelakeError, ValueError, msgspec.MsgspecError) as error:
        proof.report.not_verified.append(f"that a replay gives the same rows: {one_line(error)}")
        return
    if proof.report.refutations == refuted:
        first = max(base.commit.log_offset + 1, oldest)
        since = "from nothing" if base.tables is None else f"from epoch {base.commit.epoch}"
        proof.report.verified.append(
            f"a replay of log offsets {first} to {last.log_offset} {since} gives the rows of epoch {last.epoch}, "
            "heartbeats included"
        )


class _NotVerifiedError(RoutelakeError):
    """No replay is possible. The message has the reason."""


class _DeletedError(_NotVerifiedError):
    """The fold has deleted records that the replay needs."""


def _run(proof: Proof, log: LogReader, base: Base) -> None:
    end = {table.name: table_at(proof.lake_dir, table, proof.last.versions[table.name]) for table in STATE_TABLES}
    rows = end[TOPIC_QUEUE_TABLE.name].count_rows()
    parts = next((parts for parts in _PARTS if parts * _ROWS_IN_A_PART >= rows), _PARTS[-1])
    causes = Causes(proof.commits, proof.broken)
    for number, shard in enumerate(shard_keys(parts)):
        part = Part(base, proof.last, (shard, parts), causes)
        part.replay(log, partial(proof.at, f"replay, part {number + 1} of {parts}, offset"))
        part.compare(end, proof.report)
    causes.compare(proof, since_offset=base.commit.log_offset + 1)


class Part:
    """One part of the broker groups. One of the parts also has the KV configuration."""

    def __init__(self, base: Base, last: RouteCommit, part: tuple[int, int], causes: Causes) -> None:
        self._shard, self._parts = part
        self._last = last
        self._causes = causes
        self._first_offset = base.commit.log_offset + 1
        self._state = RouteState() if base.tables is None else self._state_at(base.commit, base.tables)
        self._live: dict[_Values, set[_Values]] = defaultdict(set)
        """Possible values of each row of brokerLiveTable, by key."""

    def replay(self, log: LogReader, at: Callable[[int, int], None]) -> RouteState:
        """Replay up to the last epoch, and return the state. Raises UnavailableError if the log cannot be read."""
        late = self._last.liveness_offset
        noted = False
        records = in_time(_records(log, self._first_offset, self._last.log_offset), self._state.now_ms)
        for count, (before_ms, record) in enumerate(records):
            self._state.now_ms = before_ms
            if record.offset > late and not noted:
                noted = True
                self._note_live(self._state.groups.values())
            if record.key == KEY_EVERYTHING or self._is_mine(record.key):
                self._fold(record, noted=noted)
            if count % _UNLOAD_EVERY == 0:
                at(record.offset, self._last.log_offset)
                for group in self._state.groups.values():
                    group.topics.unload()
        self._note_live(self._state.groups.values())
        return self._state

    def _fold(self, record: LogRecord, *, noted: bool) -> None:
        try:
            event = read_event(record)
            done = step(self._state, event, At(record.offset, record.event_time_ms))
        except EventDecodeError as error:
            self._causes.take_unread(record, str(error))
            return
        except Exception as error:  # as pipelines.shard_fold: a defect in a rule
            self._causes.take_unread(record, f"{type(error).__name__}: {error}")
            return
        self._causes.take(event, done)
        apply(self._state, done)
        if noted:
            self._note_live(change.after for change in done.changes if isinstance(change, GroupChange))

    def _note_live(self, groups: Iterable[BrokerGroup]) -> None:
        for group in groups:
            for key, values in rows_of(BROKER_LIVE_TABLE, group).items():
                self._live[key].add(values)

    def _is_mine(self, key: str) -> bool:
        return shard_of(key, self._parts) == self._shard

    def _state_at(self, commit: RouteCommit, tables: Tables) -> RouteState:
        """State with the groups of this part. Topics are read when the state machine needs them."""

        def read(spec: Table) -> pa.Table | None:
            is_wanted = spec is not TOPIC_QUEUE_TABLE and (spec is not KV_CONFIG_TABLE or self._is_mine(KEY_KV))
            return tables[spec.name].to_table() if is_wanted else None

        topics = tables[TOPIC_QUEUE_TABLE.name]
        view = RouteView.empty().apply(changes_from(commit, read))
        state = state_of(view, lambda name: TopicTable(load=partial(_topics, topics, name)), _broker_names(topics))
        state.groups = {name: group for name, group in state.groups.items() if self._is_mine(broker_key(name))}
        return state

    def compare(self, end: Tables, report: VerifyReport) -> None:
        """Compare the state after `replay` with the tables of the last epoch."""
        if (named := to_ms(self._last.watermark)) != self._state.watermark_ms:
            report.refute(
                f"routeCommitTable, epoch {self._last.epoch}: watermark is {named} ms, and by a replay of the log "
                f"{self._state.watermark_ms} ms"
            )
        found = self._rows(end)
        topics = end[TOPIC_QUEUE_TABLE.name]
        nothing = BrokerGroup("")
        for name in sorted(found.keys() | self._state.groups.keys()):
            expected = self._state.groups.get(name, nothing)
            there = found.get(name, {})
            there[TOPIC_QUEUE_TABLE.name] = {(name, topic): row for topic, row in _topics(topics, name).items()}
            for table in STATE_TABLES:
                if table is not KV_CONFIG_TABLE:
                    _differences(table, there.get(table.name, {}), rows_of(table, expected), report, self._live)
            expected.topics.unload()
        if self._is_mine(KEY_KV):
            stored = end[KV_CONFIG_TABLE.name].to_table().to_pylist()
            rows = {(row["namespace"], row["key"]): (row["value"],) for row in stored}
            _differences(KV_CONFIG_TABLE, rows, kv_rows(self._state.kv), report, {})

    def _rows(self, tables: Tables) -> dict[str, dict[str, _Rows]]:
        """Rows of this part by broker group and table. Topics are left out, but their groups are included."""
        found: dict[str, dict[str, _Rows]] = {}
        for name in _broker_names(tables[TOPIC_QUEUE_TABLE.name]):
            if self._is_mine(broker_key(name)):
                found[name] = {}
        for table in _SMALL:
            for row in tables[table.name].to_table().to_pylist():
                if self._is_mine(broker_key(row["brokerName"])):
                    rows = found.setdefault(row["brokerName"], {}).setdefault(table.name, {})
                    key = tuple(row[name] for name in table.key)
                    rows[key] = tuple(_plain(row[name]) for name in table.value_columns)
        return found


def _plain(value: Any) -> Any:  # noqa: ANN401 (a cell)
    """Convert lists, and maps as lists of pairs, to tuples, as in the state."""
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _topics(table: pds.Dataset, name: str) -> dict[str, QueueRow]:
    rows = table.to_table(filter=pc.field("brokerName") == name)
    columns = [rows[column].to_pylist() for column in ("topic", *TOPIC_QUEUE_TABLE.value_columns)]
    return {topic: QueueRow(*values) for topic, *values in zip(*columns, strict=True)}


def _broker_names(table: pds.Dataset) -> set[str]:
    names: set[str] = set()
    for batch in table.to_batches(columns=["brokerName"]):
        names.update(pc.unique(batch["brokerName"]).to_pylist())
    return names


def _records(log: LogReader, first: int, last: int) -> Iterator[LogRecord]:
    while first <= last:
        records = log.read(max(first, 0))
        if not records:
            return
        if lacks(log, first, records):
            raise _DeletedError(
                f"the fold has deleted records of the event log meanwhile, from offset {first} on. Verify again, or "
                "stop the fold before"
            )
        for record in records:
            if record.offset > last:
                return
            yield record
        first = records[-1].offset + 1


def _differences(
    table: Table,
    found: Mapping[_Values, Sequence[Any]],
    expected: Mapping[_Values, Sequence[Any]],
    report: VerifyReport,
    live: Mapping[_Values, set[_Values]],
) -> None:
    for key in sorted({*found, *expected}, key=repr):
        row, wanted = found.get(key), expected.get(key)
        if row == wanted or (table is BROKER_LIVE_TABLE and wanted is not None and row in live.get(key, ())):
            continue
        key_text = " ".join(f"{name}={value}" for name, value in zip(table.key, key, strict=True))
        report.compare(f"{table.name}, {key_text}", table.value_columns, row, wanted)

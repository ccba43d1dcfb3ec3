# SPDX-License-Identifier: Apache-2.0
"""Comparison of epochs with wrong digests against a replay, row by row, for changes and unread records.

So if the event log still has the records of the epoch, the report names each changed value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.base import LogRecord
from lake.delta.reader import table_at
from lake.write.arrow import CHANGE_SCHEMA, QUARANTINE_SCHEMA, Cause, ChangeRows, command_rows, outcome_entry
from lake.write.windows import ChangeWindows
from nameserver.state_machine.changes import RowChange, changes_of, command_of, is_audited, topic_changes
from nameserver.state_machine.step import GroupChange, KvChange, Step
from ops.verify.report import Proof, VerifyReport
from schemas.events import AnyEvent
from schemas.outcomes import APPLIED
from schemas.route_commit import RouteCommit
from schemas.tables import QUARANTINE_TABLE, TOPIC_QUEUE_TABLE

_MOST_EPOCHS: Final = 20
_CHANGES: Final = tuple(CHANGE_SCHEMA.names)
_UNREAD: Final = tuple(QUARANTINE_SCHEMA.names)

_json = msgspec.json.Encoder()

Row = tuple[Any, ...]


class Causes:
    """Rows of routeChangeTable and quarantineTable from a replay, for some epochs.

    Args:
        commits: all epochs, in order.
        broken: epochs with wrong digests.
    """

    def __init__(self, commits: Sequence[RouteCommit], broken: Sequence[int]) -> None:
        self._commits = commits
        self._ends = [commit.log_offset for commit in commits]
        self._broken = frozenset(sorted(broken)[:_MOST_EPOCHS])
        self._rows: dict[int, list[Row]] = defaultdict(list)
        self._outcomes: dict[int, dict[str, Any]] = {}
        self._unread: dict[int, dict[int, Row]] = defaultdict(dict)

    def take(self, event: AnyEvent, done: Step) -> None:
        """Add an event of the replay, with its changes and outcome."""
        epoch = self._epoch_of(done.at.offset) if self._broken else 0
        if epoch not in self._broken:
            return
        for change in done.changes:
            self._rows[epoch] += self._made(change)
        if not is_audited(event, done.outcome.verdict):
            return
        entry = outcome_entry(event, done.at, done.outcome)
        known = self._outcomes.setdefault(done.at.offset, entry)
        if entry["outcome"] == APPLIED:
            known["outcome"] = APPLIED

    def take_unread(self, record: LogRecord, error: str) -> None:
        """Add a record that the state machine could not process."""
        if (epoch := self._epoch_of(record.offset)) in self._broken:
            time_us = record.event_time_ms * 1000
            self._unread[epoch][record.offset] = (record.offset, time_us, record.key, error, record.payload)

    def compare(self, proof: Proof, *, since_offset: int) -> None:
        """Report differences in epochs that begin at an offset or later.

        Raises:
            DamagedTableError, DeltaError, OSError, pyarrow.ArrowException: a table cannot be read.
        """
        for offset, entry in self._outcomes.items():
            rows = command_rows([entry])
            self._rows[self._epoch_of(offset)] += _tuples(rows, _CHANGES)
        before = {commit.epoch: previous for previous, commit in zip(self._commits, self._commits[1:], strict=False)}
        for commit in self._commits:
            if commit.epoch not in self._broken:
                continue
            previous = before.get(commit.epoch)
            if (-1 if previous is None else previous.log_offset) + 1 < since_offset:
                continue
            self._compare(proof, commit, previous)

    def _compare(self, proof: Proof, commit: RouteCommit, previous: RouteCommit | None) -> None:
        report = proof.report
        known = report.refutations
        windows = ChangeWindows(proof.lake_dir, first=commit.epoch, last=commit.epoch)
        stored = [row for rows in windows.read() for row in _tuples(rows, _CHANGES)]
        _name("routeChangeTable", _CHANGES, commit.epoch, stored, self._rows[commit.epoch], report)
        since_offset = -1 if previous is None else previous.log_offset
        table = table_at(proof.lake_dir, QUARANTINE_TABLE)
        offset = pc.field("offset")
        unread = _tuples(table.to_table(filter=(offset > since_offset) & (offset <= commit.log_offset)), _UNREAD)
        _name("quarantineTable", _UNREAD, commit.epoch, unread, list(self._unread[commit.epoch].values()), report)
        if report.refutations == known:
            report.refute(
                f"routeCommitTable, epoch {commit.epoch}: this row was changed; the epoch's changes and unread records "
                "are those of a replay"
            )

    def _epoch_of(self, offset: int) -> int:
        """The first epoch that includes an offset, or 0 for none."""
        place = bisect_left(self._ends, offset)
        return self._commits[place].epoch if place < len(self._commits) else 0

    def _made(self, change: GroupChange | KvChange) -> list[Row]:
        actor = None if change.event is None else _json.encode(change.event.actor).decode()
        cause = Cause(change.at.offset, change.at.now_ms, command_of(change), actor)
        topics = None if isinstance(change, KvChange) else topic_changes(change.before, change.after)
        made: list[RowChange] = []
        if topics is not None:
            made = [
                RowChange(TOPIC_QUEUE_TABLE, (topics.broker_name, topic), before, after)
                for topic, before, after in zip(topics.topics, topics.before, topics.after, strict=True)
            ]
        rows = ChangeRows()
        rows.add([*made, *changes_of(change)], cause)
        return _tuples(rows.table(), _CHANGES)


def _tuples(rows: pa.Table, names: Sequence[str]) -> list[Row]:
    """Rows as tuples, with times in microseconds since 1970."""
    columns = []
    for name in names:
        column = rows[name]
        columns.append((column.cast("int64") if name == "eventTime" else column).to_pylist())
    return list(zip(*columns, strict=True))


def _name(
    table: str,
    names: Sequence[str],
    epoch: int,
    stored: Sequence[Row],
    expected: Sequence[Row],
    report: VerifyReport,
) -> None:
    """Report each unexpected row, with the columns that differ from the most similar expected row."""
    strange, missing = Counter(stored), Counter(expected)
    both = strange & missing
    strange, missing = strange - both, missing - both
    others = list(missing.elements())
    for row in strange.elements():
        alike = max(others, key=lambda other: _likeness(row, other), default=None)
        where = f"{table}, epoch {epoch}, offset {row[names.index('offset')]}"
        if "seq" in names:
            where += f", seq {row[names.index('seq')]}"
        if alike is not None and _likeness(row, alike) * 2 < len(names):
            alike = None
        if alike is not None:
            others.remove(alike)
        report.compare(where, names, row, alike)
    for row in others:
        described = dict(zip(names, row, strict=True))
        report.refute(f"{table}, epoch {epoch}: a row of offset {described['offset']} is missing; a replay has it")


def _likeness(row: Row, other: Row) -> int:
    return sum(left == right for left, right in zip(row, other, strict=True))

# SPDX-License-Identifier: Apache-2.0
"""Rows of the state tables at a moment: of its commit's version or what is kept for longer, and changes."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake.delta.query import names, select
from lake.delta.types import arrow_schema
from lake.history.arrow_names import SortedNames
from lake.history.as_of_resolver import AsOf
from lake.history.epochs import Epochs, Recent
from lake.history.partial_epoch import changed_rows, more_rows, with_changes
from lake.history.reconstruct import from_changes, from_intervals, intervals_of
from lake.history.versions import PastTables
from schemas.errors import UnavailableError
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE, Table

_TOPICS_BYTES: Final = 64 * 1024 * 1024
"""Of lists of names: three million take 50 MiB. A list is read page by page."""


class Condition(NamedTuple):
    """SQL on the columns of a state table, and the same on routeChangeTable's where they are others."""

    of_rows: str = "true"
    of_changes: str | None = None


class PastRows:
    """Rows of one lake. Storage's errors are whoever's that asks (`AsOfResolver.reading`). Safe for threads.

    Args:
        epochs: Its commits.
        tables: Its tables.
    """

    def __init__(self, epochs: Epochs, tables: PastTables) -> None:
        """Nothing was asked yet."""
        self._epochs = epochs
        self._tables = tables
        self._topics: Recent[tuple[int, datetime | None, str], SortedNames] = Recent(_TOPICS_BYTES)

    def at(self, spec: Table, moment: AsOf, condition: str, of_changes: str | None = None) -> pa.Table:
        """Rows at a moment.

        Args:
            spec: The table.
            moment: When.
            condition: SQL on its columns.
            of_changes: The same on routeChangeTable's, where they are others.
        """
        commit = moment.commit
        if not moment.kept:
            rows = self._not_kept(spec, commit, condition, of_changes or condition)
        elif commit.epoch:
            rows = select(self._tables.at(spec, commit), f"SELECT {names(spec.column_names)} FROM t WHERE {condition}")  # noqa: S608
        else:
            rows = arrow_schema(spec).empty_table()
        if moment.until is None:
            return rows
        later = self._epochs.commit(commit.epoch + 1)
        if later is None:
            raise UnavailableError(f"epoch {commit.epoch + 1} cannot be read now")
        changes = self._tables.at(ROUTE_CHANGE_TABLE, later)
        return with_changes(spec, rows, changed_rows(changes, spec, later.epoch, moment.until, of_changes or condition))

    def topics(self, moment: AsOf, condition: str) -> SortedNames:
        """Names of the topics that have a row at a moment that meets an SQL condition."""
        commit = moment.commit
        key = (commit.epoch, moment.until, condition)
        known = self._topics.get(key)
        if known is not None:
            return known
        if not moment.kept:
            rows = self._not_kept(TOPIC_QUEUE_TABLE, commit, condition, condition)["topic"]
        elif commit.epoch:
            sql = f'SELECT "topic" FROM t WHERE {condition}'  # noqa: S608
            rows = select(self._tables.at(TOPIC_QUEUE_TABLE, commit), sql)["topic"]
        else:
            rows = pa.chunked_array([], pa.string())
        later = None if moment.until is None else self._epochs.commit(commit.epoch + 1)
        if moment.until is not None and later is not None:
            changes = self._tables.at(ROUTE_CHANGE_TABLE, later)
            rows = _with_more(rows, dict(more_rows(changes, later.epoch, moment.until, condition)))
        found = SortedNames(rows)
        self._topics.put(key, found, found.bytes + len(condition))
        return found

    def forget(self) -> None:
        """Another lake has taken its place."""
        self._topics.clear()

    def _not_kept(self, spec: Table, commit: RouteCommit, condition: str, of_changes: str) -> pa.Table:
        """Rows of a table at a commit whose version is not there any more."""
        table = intervals_of(spec)
        intervals = None if table is None else self._tables.intervals_up_to(table, commit.epoch)
        if intervals is not None:
            return from_intervals(intervals, spec, commit.epoch, condition)
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None:
            raise UnavailableError("the newest epoch cannot be read now")
        return from_changes(self._tables.at(ROUTE_CHANGE_TABLE, newest), spec, commit.epoch, of_changes)


def _with_more(rows: pa.ChunkedArray, more: dict[str, int]) -> pa.ChunkedArray:
    """Topics of rows, of some of which there are so many more, or fewer."""
    changed = pc.is_in(rows, pa.array(more, pa.string()))
    counts = dict(more)
    for each in pc.value_counts(rows.filter(changed)).to_pylist():
        counts[each["values"]] += each["counts"]
    there = pa.array([topic for topic, count in counts.items() if count > 0], pa.string())
    return pa.chunked_array([*rows.filter(pc.invert(changed)).chunks, there], pa.string())

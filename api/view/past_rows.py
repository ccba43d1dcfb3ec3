# SPDX-License-Identifier: Apache-2.0
"""Rows of the state tables at a moment: of its commit's version or what is kept for longer, and changes."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from api.view.between import changed_rows, more_rows, with_changes
from api.view.epochs import Epochs
from api.view.long_past import from_changes, from_intervals, intervals_of
from api.view.moments import Moment
from api.view.past_tables import PastTables
from lake.commits import RouteCommit
from lake.query import names, select
from lake.types import arrow_schema
from schemas.tables import ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE, Table


class Condition(NamedTuple):
    """SQL on the columns of a state table, and the same on routeChangeTable's where they are others."""

    of_rows: str = "true"
    of_changes: str | None = None


class PastRows:
    """Rows of one lake. Storage's errors are whoever's that asks (`Moments.reading`). Safe for threads.

    Args:
        epochs: Its commits.
        tables: Its tables.
    """

    def __init__(self, epochs: Epochs, tables: PastTables) -> None:
        """Nothing was asked yet."""
        self._epochs = epochs
        self._tables = tables

    def at(self, spec: Table, moment: Moment, condition: str, of_changes: str | None = None) -> pa.Table:
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
        assert later is not None
        changes = self._tables.at(ROUTE_CHANGE_TABLE, later)
        return with_changes(spec, rows, changed_rows(changes, spec, later.epoch, moment.until, of_changes or condition))

    def counts_of_topics(self, moment: Moment, condition: str) -> dict[str, int]:
        """How many rows of topicQueueTable each topic has at a moment, of those that meet an SQL condition.

        One whose rows all went since the commit may be in it with 0.
        """
        commit = moment.commit
        rows: dict[str, int] = {}
        if not moment.kept:
            counted = self._not_kept(TOPIC_QUEUE_TABLE, commit, condition, condition)
            counted = counted.group_by("topic").aggregate([([], "count_all")])
            rows = dict(zip(counted["topic"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
        elif commit.epoch:
            sql = f'SELECT "topic", count(*) AS "rows" FROM t WHERE {condition} GROUP BY "topic"'  # noqa: S608
            found = select(self._tables.at(TOPIC_QUEUE_TABLE, commit), sql)
            rows = dict(zip(found["topic"].to_pylist(), found["rows"].to_pylist(), strict=True))
        later = None if moment.until is None else self._epochs.commit(commit.epoch + 1)
        if moment.until is not None and later is not None:
            changes = self._tables.at(ROUTE_CHANGE_TABLE, later)
            for topic, more in more_rows(changes, later.epoch, moment.until, condition):
                rows[topic] = rows.get(topic, 0) + more
        return rows

    def _not_kept(self, spec: Table, commit: RouteCommit, condition: str, of_changes: str) -> pa.Table:
        """Rows of a table at a commit whose version is not there any more."""
        table = intervals_of(spec)
        intervals = None if table is None else self._tables.intervals_up_to(table, commit.epoch)
        if intervals is not None:
            return from_intervals(intervals, spec, commit.epoch, condition)
        newest = self._epochs.commit(self._epochs.newest)
        assert newest is not None
        return from_changes(self._tables.at(ROUTE_CHANGE_TABLE, newest), spec, commit.epoch, of_changes)

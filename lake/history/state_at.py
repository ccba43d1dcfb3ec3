# SPDX-License-Identifier: Apache-2.0
"""Rows of the state tables at a point in time.

If the version of the table at the epoch is still kept, its rows are read. Otherwise topics, addresses and KV entries
come from the interval tables. For other tables, or if the interval table has not reached the epoch, the last change of
each key is searched in all changes. In both cases heartbeat times are null, as neither source has them.

For a time within an epoch, the changes of that epoch up to the time are added. The state machine expires an overdue
member of a group before it processes the next event of the group. So the order of a group's changes by event time is
the order in which they were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, overload

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.delta.log import table_uri
from lake.delta.query import names, select, text
from lake.delta.query import time as time_literal
from lake.delta.reader import GONE
from lake.delta.types import arrow_schema, arrow_value
from lake.history.as_of import AsOf, Epochs
from lake.history.kept import Recent
from schemas.errors import RoutelakeError, UnavailableError, one_line
from schemas.intervals import INTERVALS, INTERVALS_APP
from schemas.route_commit import RouteCommit
from schemas.tables import KV_CONFIG_TABLE, ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE, Table

log = structlog.get_logger("routelake.history")

_INTERVALS: Final = {
    intervals.source.name: intervals.table
    for intervals in INTERVALS
    if intervals.state == intervals.source.value_columns
}
"""Interval table with all columns of a state table, by name of the state table."""
_TABLES_BYTES: Final = 32 * 1024 * 1024
_TABLE_BYTES: Final = 256 * 1024
"""Memory in bytes of an open table without its list of files."""
_LISTS: Final = 2
"""Maximum number of copies of the list of files, relative to its size as Arrow."""
_COMMIT_BYTES: Final = 28 * 1024
"""Memory in bytes of a commit after the checkpoint that added a file which is still in the table. delta-rs keeps a
batch of Arrow for each. Measured with 50 and 500 files: 1.1 and 13.0 MB without a checkpoint, 1.1 MB for 500 files that
are in one. It does not say which files these are."""
_COMMITS: Final = 250
"""Maximum number of files that are counted as added after the checkpoint. Maintenance compacts them at this number."""
_TOPICS_BYTES: Final = 64 * 1024 * 1024
"""Memory in bytes for lists of topic names. Three million names take 50 MiB. A list is read page by page."""
_WIDE_ROWS: Final = 16
"""Number of rows decoded at a time, as a KV value may have 256 KiB."""
_REMEMBERED_S: Final = 60.0
"""Seconds for which a lost version and older ones are not tried again."""


class Condition(NamedTuple):
    """SQL condition on the columns of a state table, and on those of routeChangeTable if these differ."""

    of_rows: str = "true"
    of_changes: str | None = None


class PastRows:
    """Reader of rows at points in time, for one lake. Thread-safe.

    Args:
        lake_dir: Directory or URI of the lake, which may not exist yet.
        epochs: Index of epochs of the lake.
    """

    def __init__(self, lake_dir: str, epochs: Epochs) -> None:
        """Create the reader without opening a file."""
        self._lake_dir = lake_dir
        self._epochs = epochs
        self._tables: Recent[tuple[str, int], DeltaTable] = epochs.with_lake(Recent(_TABLES_BYTES))
        self._topics: Recent[tuple[int, datetime | None, str], SortedNames] = epochs.with_lake(Recent(_TOPICS_BYTES))
        # An epoch with lost files, the monotonic time until which it is not tried again, the number of the lake. It is
        # assigned as one tuple, so threads need no lock.
        self._not_kept = (0, 0.0, 0)

    def table(self, spec: Table, commit: RouteCommit) -> DeltaTable:
        """Open a table at the version of a commit. Raises errors of storage."""
        version = commit.versions[spec.name]
        known = self._tables.get((spec.name, version))
        if known is None:
            known = DeltaTable(table_uri(self._lake_dir, spec), version=version)
            files = known.get_add_actions()
            after_checkpoint = min(files.num_rows, _COMMITS)
            size_bytes = _TABLE_BYTES + _LISTS * files.nbytes + _COMMIT_BYTES * after_checkpoint
            self._tables.put((spec.name, version), known, size_bytes)
        return known

    def at(self, spec: Table, point: AsOf, wanted: Condition, columns: Sequence[str] = ()) -> pa.Table:
        """Rows of a state table at a point in time that meet a condition.

        Returns:
            The named columns, or all. For a time within an epoch, changed rows with `GONE` follow the rows of the
            previous epoch. The last row of each key counts.

        Raises:
            UnavailableError: The tables cannot be read now.
        """
        columns = columns or spec.column_names
        with reading("the past"):
            rows = self._of_epoch(spec, point.commit, wanted, columns)
            if point.until is None:
                return rows
            changed = self._changed(spec, point.commit.epoch + 1, point.until, wanted, columns)
        plain = rows.cast(pa.schema([field.with_nullable(True) for field in _schema(spec, columns)]))
        return pa.concat_tables([plain.append_column(GONE, pa.repeat(pa.scalar(False), rows.num_rows)), changed])

    def topics(self, point: AsOf, condition: str) -> SortedNames:
        """Names of the topics that have a row at a point in time that meets an SQL condition.

        Raises:
            UnavailableError: The tables cannot be read now.
        """
        key = (point.commit.epoch, point.until, condition)
        found = self._topics.get(key)
        if found is None:
            within = point.until is not None
            columns = ("brokerName", "topic") if within else ("topic",)
            rows = self.at(TOPIC_QUEUE_TABLE, point, Condition(condition), columns)
            found = SortedNames(_last_rows(rows) if within else rows["topic"])
            self._topics.put(key, found, found.bytes + len(condition))
        return found

    def last_change(self, commit: RouteCommit, until: datetime) -> tuple[datetime, int] | None:
        """Event time and offset of the last change of a commit's epoch up to a time, or None without any.

        Raises:
            UnavailableError: routeChangeTable cannot be read now.
        """
        with reading(ROUTE_CHANGE_TABLE.name):
            (found,) = select(
                self.table(ROUTE_CHANGE_TABLE, commit),
                'SELECT max("eventTime") AS "eventTime", max("offset") AS "offset" '  # noqa: S608
                f'FROM t WHERE "epoch" = {commit.epoch} AND "eventTime" <= {time_literal(until)}',
            ).to_pylist()
        return None if found["eventTime"] is None else (found["eventTime"].astimezone(UTC), found["offset"])

    def _of_epoch(self, spec: Table, commit: RouteCommit, wanted: Condition, columns: Sequence[str]) -> pa.Table:
        if commit.epoch == 0:
            return _schema(spec, columns).empty_table()
        epoch, until_s, lake = self._not_kept
        is_tried = commit.epoch > epoch or time.monotonic() >= until_s or lake != self._epochs.lake
        is_lost = False
        if is_tried:
            try:
                table = self.table(spec, commit)
                return select(table, f"SELECT {names(columns)} FROM t WHERE {wanted.of_rows}")  # noqa: S608
            except Exception as error:
                is_lost = _names_lost_file(error)
                if not is_lost:
                    why = one_line(error)
                    log.warning("cannot read an old version of a table", table=spec.name, epoch=commit.epoch, error=why)
        rows = self._reconstructed(spec, commit.epoch, wanted, columns)
        if is_lost:
            self._not_kept = (max(epoch, commit.epoch), time.monotonic() + _REMEMBERED_S, self._epochs.lake)
        return rows

    def _reconstructed(self, spec: Table, epoch: int, wanted: Condition, columns: Sequence[str]) -> pa.Table:
        """Rows at an epoch, if the version of the table was deleted."""
        intervals = self._intervals_up_to(spec, epoch)
        if intervals is not None:
            return select(
                intervals,
                f"SELECT {names(columns)} FROM t "  # noqa: S608
                f'WHERE "fromEpoch" <= {epoch} AND ("toEpoch" IS NULL OR "toEpoch" > {epoch}) AND {wanted.of_rows}',
            )
        found = select(
            self.table(ROUTE_CHANGE_TABLE, self._commit(self._epochs.newest)),
            'SELECT "key", "after" FROM (SELECT "key", "after", row_number() OVER (PARTITION BY "key" '  # noqa: S608
            'ORDER BY "epoch" DESC, "eventTime" DESC, "offset" DESC, "seq" DESC) AS "n" '
            f'FROM t WHERE "epoch" <= {epoch} AND "tableName" = {text(spec.name)} '
            f'AND {wanted.of_changes or wanted.of_rows}) AS c WHERE "n" = 1 AND "after" IS NOT NULL',
            batch_rows=_WIDE_ROWS if spec is KV_CONFIG_TABLE else None,
        )
        return _from_json(spec, found, columns)

    def _intervals_up_to(self, spec: Table, epoch: int) -> DeltaTable | None:
        """The interval table of a state table, if it has reached an epoch, otherwise None."""
        try:
            found = DeltaTable(table_uri(self._lake_dir, _INTERVALS[spec.name]))
        except (KeyError, OSError, DeltaError):
            return None
        return found if (found.transaction_version(INTERVALS_APP) or 0) >= epoch else None

    def _changed(self, spec: Table, epoch: int, until: datetime, wanted: Condition, columns: Sequence[str]) -> pa.Table:
        """Rows that an epoch changed up to a time, oldest first. `GONE` marks removed rows."""
        found = select(
            self.table(ROUTE_CHANGE_TABLE, self._commit(epoch)),
            f'SELECT "key", "after" FROM t WHERE "epoch" = {epoch} AND "eventTime" <= {time_literal(until)} '  # noqa: S608
            f'AND "tableName" = {text(spec.name)} AND {wanted.of_changes or wanted.of_rows} '
            'ORDER BY "eventTime", "offset", "seq"',
            batch_rows=_WIDE_ROWS,
        )
        return _from_json(spec, found, columns).append_column(GONE, found["after"].is_null())

    def _commit(self, epoch: int) -> RouteCommit:
        commit = self._epochs.commit(epoch)
        if commit is None:
            raise UnavailableError(f"epoch {epoch} cannot be read now")
        return commit


def key_literal(**columns: str) -> str:
    """SQL literal for column ``key`` of routeChangeTable, from the key columns of a row in order."""
    return text(msgspec.json.encode(columns).decode())


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Convert errors of storage.

    Raises:
        UnavailableError: Reading failed in this context.
    """
    try:
        yield
    except RoutelakeError:
        raise
    except Exception as error:
        raise UnavailableError(f"{what} cannot be read at the moment: {one_line(error)}") from error


def _names_lost_file(error: Exception) -> bool:
    """Return True if files of a version were deleted. delta-rs and Arrow have no class of errors for data files."""
    return isinstance(error, TableNotFoundError) or "not found" in str(error)


def _schema(spec: Table, columns: Sequence[str]) -> pa.Schema:
    schema = arrow_schema(spec)
    return pa.schema([schema.field(name) for name in columns])


def _from_json(spec: Table, found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows of a state table from ``key`` and ``after`` of routeChangeTable. Missing columns are null."""
    rows: list[dict[str, Any]] = [
        {**msgspec.json.decode(key), **({} if after is None else msgspec.json.decode(after))}
        for key, after in zip(found["key"].to_pylist(), found["after"].to_pylist(), strict=True)
    ]
    return pa.table(
        {
            field.name: pa.array([arrow_value(row.get(field.name), field.type) for row in rows], field.type)
            for field in _schema(spec, columns)
        }
    )


def _last_rows(rows: pa.Table) -> pa.ChunkedArray:
    """Topics of rows from `PastRows.at`, also for a time within an epoch."""
    touched = pc.is_in(rows["topic"], rows.filter(rows[GONE])["topic"].combine_chunks())
    there: dict[tuple[str, str], None] = {}
    for broker, topic, gone in zip(*(column.to_pylist() for column in rows.filter(touched).columns), strict=True):
        there.pop((broker, topic), None)
        if not gone:
            there[broker, topic] = None
    left = pa.array([topic for _, topic in there], pa.string())
    return pa.chunked_array([*rows.filter(pc.invert(touched))["topic"].chunks, left], pa.string())


class SortedNames(Sequence[str]):
    """Distinct names in the order of Python and UTF-8, stored in Arrow. Only names that are read become Python objects.

    Args:
        names: Texts, in any order and with repetitions.
    """

    def __init__(self, names: pa.ChunkedArray | pa.Array) -> None:
        """Sort the names, without the interpreter lock."""
        found = pc.unique(names)
        self._names = found.take(pc.sort_indices(found))

    @property
    def bytes(self) -> int:
        """Size in memory, bytes."""
        return int(self._names.nbytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            found: Any = self._names[place].to_pylist()
            return list(found)
        return str(self._names[place].as_py())

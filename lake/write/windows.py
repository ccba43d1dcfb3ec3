# SPDX-License-Identifier: Apache-2.0
"""Sequential reading of routeChangeTable in the order of epochs, one window of rows at a time.

Compaction leaves its files in no order, and one epoch may have a million rows. So the two columns that order the rows
are read first. Then each window of rows is read from the files that may have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake.commits import epochs_in
from lake.delta.log import File, active, table_uri
from lake.delta.reader import dataset, plain_text
from schemas.tables import ROUTE_CHANGE_TABLE

WINDOW_ROWS: Final = 200_000
"""Maximum number of rows in a window, unless one offset has more."""


class Window(NamedTuple):
    """Rows from one (epoch, offset) to another, both included."""

    first: tuple[int, int]
    last: tuple[int, int]
    rows: int


class ChangeWindows:
    """The rows of a range of epochs.

    Args:
        lake_dir: directory of the lake.
        first: the first epoch. Default: the oldest.
        last: the last epoch. Default: the newest.
        whole_epochs: keep all rows of an epoch in one window.
        rows: maximum number of rows in a window. An epoch or offset with more rows is one window.

    Raises:
        DamagedTableError, DeltaError, OSError: the table cannot be read.
    """

    def __init__(
        self,
        lake_dir: str,
        *,
        first: int | None = None,
        last: int | None = None,
        whole_epochs: bool = False,
        rows: int = WINDOW_ROWS,
    ) -> None:
        self._lake_dir = lake_dir
        files = active(table_uri(lake_dir, ROUTE_CHANGE_TABLE)).files
        self._files = [file for file in files if _may_hold(file, first, last)]
        self._windows = list(self._plan(first, last, whole_epochs, rows))

    @property
    def rows(self) -> int:
        """Number of rows of all windows."""
        return sum(window.rows for window in self._windows)

    def read(self, columns: Sequence[str] | None = None, codes: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the rows of each window, unordered within it. Text columns in ``codes`` are dictionaries."""
        for window in self._windows:
            yield self._read(window, columns, codes)

    def _read(self, window: Window, columns: Sequence[str] | None, codes: Sequence[str]) -> pa.Table:
        files = [file for file in self._files if _may_hold(file, window.first[0], window.last[0])]
        rows = self._rows_of(window, columns, codes, files)
        # If rows are missing, the statistics of a file are wrong (written by another program): read all files.
        return rows if rows.num_rows == window.rows else self._rows_of(window, columns, codes, self._files)

    def _rows_of(
        self, window: Window, columns: Sequence[str] | None, codes: Sequence[str], files: Sequence[File]
    ) -> pa.Table:
        found = dataset(self._lake_dir, ROUTE_CHANGE_TABLE, files, codes)
        return plain_text(
            found.to_table(
                columns=None if columns is None else list(columns), filter=_from(window.first) & _to(window.last)
            )
        )

    def _plan(self, first: int | None, last: int | None, whole_epochs: bool, rows: int) -> Iterator[Window]:
        places = self._places(first, last, whole_epochs)
        start, end, count = None, None, 0
        for part in places.to_batches(max_chunksize=100_000):
            epochs = part["epoch"].to_pylist()
            offsets = part["offset"].to_pylist() if "offset" in part.schema.names else [None] * len(epochs)
            for epoch, offset, some in zip(epochs, offsets, part["count"].to_pylist(), strict=True):
                if start is not None and end is not None and count + some > rows:
                    yield Window(start, end, count)
                    start, count = None, 0
                if start is None:
                    start = (epoch, -(2**62) if offset is None else offset)
                end, count = (epoch, 2**62 if offset is None else offset), count + some
        if start is not None and end is not None:
            yield Window(start, end, count)

    def _places(self, first: int | None, last: int | None, whole_epochs: bool) -> pa.Table:
        """Number of rows for each (epoch, offset), or for each epoch, in order."""
        names = ["epoch"] if whole_epochs else ["epoch", "offset"]
        epoch = pc.field("epoch")
        wanted = (epoch >= (-(2**62) if first is None else first)) & (epoch <= (2**62 if last is None else last))
        found: list[pa.Table] = []
        for batch in dataset(self._lake_dir, ROUTE_CHANGE_TABLE, self._files).to_batches(columns=names, filter=wanted):
            if batch.num_rows:
                counted = pa.Table.from_batches([batch]).append_column("one", pa.repeat(pa.scalar(1), batch.num_rows))
                found.append(counted.group_by(names).aggregate([("one", "sum")]))
        if not found:
            return pa.table({name: pa.array([], pa.int64()) for name in [*names, "count"]})
        whole = pa.concat_tables(found).group_by(names).aggregate([("one_sum", "sum")])
        return whole.rename_columns([*names, "count"]).sort_by([(name, "ascending") for name in names])


def _may_hold(file: File, first: int | None, last: int | None) -> bool:
    oldest, newest = epochs_in(file)
    return (first is None or newest >= first) and (last is None or oldest <= last)


def _from(place: tuple[int, int]) -> pc.Expression:
    epoch, offset = pc.field("epoch"), pc.field("offset")
    return (epoch >= place[0]) & ((epoch > place[0]) | (offset >= place[1]))


def _to(place: tuple[int, int]) -> pc.Expression:
    epoch, offset = pc.field("epoch"), pc.field("offset")
    return (epoch <= place[0]) & ((epoch < place[0]) | (offset <= place[1]))

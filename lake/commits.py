# SPDX-License-Identifier: Apache-2.0
"""Reading of routeCommitTable. Each row names one consistent state of all tables.

The row of an epoch is written last. So only a new row updates a view, and a start continues from the last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from deltalake.exceptions import TableNotFoundError

from lake.delta import ddl
from lake.delta.log import File, active, decode_entry, is_local, table_uri
from lake.delta.reader import CommitReader, dataset
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_COMMIT_TABLE

_ANY_EPOCH: Final = 2**62

_COLUMNS: Final = [name for name in ROUTE_COMMIT_TABLE.column_names if name != "batchId"]


def last_commit(lake_dir: str | Path, files: Sequence[File] | None = None) -> RouteCommit | None:
    """The commit of the greatest epoch, or None in an empty lake.

    Args:
        lake_dir: directory or URI of the lake.
        files: files of routeCommitTable at some version. Default: the newest version.

    Raises:
        TableNotFoundError, DamagedTableError, DeltaError, OSError: routeCommitTable cannot be read.
    """
    files = _newest_files(lake_dir) if files is None else files
    greatest = max((epochs_in(file)[1] for file in files), default=None)
    if greatest is None:
        return None
    found = commits_between(lake_dir, files, first=0 if greatest == _ANY_EPOCH else greatest)
    return found[-1] if found else None


def last_exact_commit(lake_dir: str | Path, files: Sequence[File] | None = None) -> RouteCommit | None:
    """The newest commit at which brokerLiveTable lacks no heartbeat, that is, livenessOffset is logOffset."""
    files = _newest_files(lake_dir) if files is None else files
    exact = pc.field("livenessOffset") == pc.field("logOffset")
    epoch = pc.max(_dataset(lake_dir, files).to_table(columns=["epoch"], filter=exact)["epoch"]).as_py()
    return None if epoch is None else commits_between(lake_dir, files, first=epoch, last=epoch)[0]


def commits_between(
    lake_dir: str | Path, files: Sequence[File], *, first: int = 0, last: int = _ANY_EPOCH
) -> list[RouteCommit]:
    """The commits of epochs first to last, in order."""
    return _commits(commit_rows(lake_dir, files, _COLUMNS, first=first, last=last))


def needs_from(exact: RouteCommit | None) -> int:
    """The first offset of the event log that a start reads (`lake.write.seed`), given its `last_exact_commit`."""
    return 1 if exact is None else exact.log_offset + 1


def plain_commits(lake_dir: str | Path, files: Sequence[File]) -> list[RouteCommit]:
    """All commits, in order, also if column ``outcomes`` or the statistics in the Delta log are damaged."""
    columns = [name for name in _COLUMNS if name != "outcomes"]
    return _commits(_dataset(lake_dir, files).to_table(columns=columns))


def commit_rows(
    lake_dir: str | Path,
    files: Sequence[File],
    columns: Sequence[str] = ROUTE_COMMIT_TABLE.column_names,
    *,
    first: int = 0,
    last: int = _ANY_EPOCH,
) -> pa.Table:
    """Columns of the commits of epochs first to last, in order. Only files that may hold these epochs are read."""
    wanted = [file for file in files if (epochs := epochs_in(file))[1] >= first and epochs[0] <= last]
    epoch = pc.field("epoch")
    in_range = (epoch >= first) & (epoch <= last)
    return _dataset(lake_dir, wanted).to_table(columns=list(columns), filter=in_range).sort_by("epoch")


class OpenedTail(NamedTuple):
    """Result of `CommitTail.open`: the files of the table, and the newest commit or None."""

    files: Sequence[File]
    newest: RouteCommit | None


class CommitTail:
    """Follows routeCommitTable commit by commit. For one thread.

    `open` finds the newest version. Afterwards `read` returns later commits, each from its own file.

    Args:
        lake_dir: directory or URI of the lake.
    """

    def __init__(self, lake_dir: str) -> None:
        self._lake_dir = lake_dir
        self._log = CommitReader(lake_dir, ROUTE_COMMIT_TABLE)
        self._version: int | None = None
        self._epoch = 0
        self._entry: bytes | None = None
        """Log entry of the last version read. Each commit has its own time and id, so its replacement is another."""
        self._log_mtime_ns: int | None = None

    @property
    def version(self) -> int | None:
        """The version of the table read last, or None if `read` needs an `open` first."""
        return self._version

    def open(self) -> OpenedTail | None:
        """Find the newest version, from which `read` continues. Return None while there is no table.

        Raises:
            SetupError: the lake is of another format.
            DamagedTableError, DeltaError, OSError: the table cannot be read.
        """
        self._version = None
        ddl.check_format(self._lake_dir)
        try:
            version, files = active(table_uri(self._lake_dir, ROUTE_COMMIT_TABLE))
        except TableNotFoundError:
            return None
        newest = last_commit(self._lake_dir, files)
        self._epoch = 0 if newest is None else newest.epoch
        self._reached(version, self._log.find(version))
        return OpenedTail(files, newest)

    def close(self) -> None:
        """Forget the version, as the caller lost commits that were read. The next `read` needs an `open`."""
        self._version = None

    def read(self, limit: int) -> list[RouteCommit] | None:
        """Read the next commits, oldest first. The list is empty if there is no new commit.

        Args:
            limit: Number of commits after which reading stops. The last version read may add more.

        Returns:
            None if `open` must be called again: the file of the last version is missing or replaced, an epoch is
            missing, or an earlier call raised an error.

        Raises:
            OSError, ValueError: a commit cannot be read.
        """
        try:
            found = self._read(limit)
        except BaseException:
            self.close()
            raise
        if found is None:
            self.close()
        return found

    def _read(self, limit: int) -> list[RouteCommit] | None:
        found: list[RouteCommit] = []
        while self._version is not None and len(found) < limit:
            entry = self._log.find(self._version + 1)
            if entry is None:
                return found
            # In an object store this check is a request, so there only `has_moved` makes it.
            if is_local(self._lake_dir) and not self.is_same_table():
                return None
            rows = self._log.added(decode_entry(entry))
            for commit in [] if rows is None else _commits(rows):
                if commit.epoch != self._epoch + 1:
                    return None
                self._epoch = commit.epoch
                found.append(commit)
            self._reached(self._version + 1, entry)
        return None if self._version is None else found

    def is_same_table(self) -> bool:
        """Return True if the log entry of the last version read was not replaced."""
        return self._version is not None and self._entry is not None and self._log.find(self._version) == self._entry

    def has_moved(self) -> bool:
        """Return True if the log seems to have changed since it was last read.

        Raises:
            OSError: the log is missing.
        """
        if not is_local(self._lake_dir):
            return not self.is_same_table()
        return self._log.mtime_ns() != self._log_mtime_ns

    def _reached(self, version: int, entry: bytes | None) -> None:
        self._version, self._entry, self._log_mtime_ns = version, entry, self._log.mtime_ns()


def _newest_files(lake_dir: str | Path) -> Sequence[File]:
    return active(table_uri(str(lake_dir), ROUTE_COMMIT_TABLE)).files


def _dataset(lake_dir: str | Path, files: Sequence[File]) -> pds.Dataset:
    return dataset(str(lake_dir), ROUTE_COMMIT_TABLE, files)


def epochs_in(file: File) -> tuple[int, int]:
    """The oldest and the newest epoch in a file of a table with epochs. Without statistics, the widest range."""
    known = file.statistics
    oldest, newest = known.min_values.epoch, known.max_values.epoch
    return 0 if oldest is None else oldest, _ANY_EPOCH if newest is None else newest


def _commits(rows: pa.Table) -> list[RouteCommit]:
    found = [
        msgspec.convert(
            {**row, "versions": dict(row["versions"]), "outcomes": msgspec.json.decode(row.get("outcomes") or "[]")},
            RouteCommit,
        )
        for row in rows.to_pylist()
    ]
    return sorted(found, key=lambda commit: commit.epoch)

# SPDX-License-Identifier: Apache-2.0
"""Local copy of a lake in an object store. Its one writer commits to the copy (`lake.publisher`).

The copy has the newest version of each table, and the log since a checkpoint that suffices to read the last epoch. Each
start fetches the log again, so that nothing depends on how the last run ended. Data files with the right name and size
are kept. A standby fold then fetches new entries, and starts the log again from a newer checkpoint.
"""

from __future__ import annotations

import math
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import structlog
from deltalake.exceptions import DeltaError

from lake.commits import last_commit, last_exact_commit
from lake.delta.ddl import LAKE_FILE, check_format
from lake.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    DamagedTableError,
    active,
    checkpoint_name,
    data_files,
    decode_last_checkpoint,
    entry_name,
    log_versions,
)
from lake.store import PART, Store, Tagged
from schemas.errors import SetupError, one_line
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES, FOLD_FAILURE_FILE, FOLD_STATUS_FILE, ROUTE_COMMIT_TABLE

log = structlog.get_logger("routelake.fold")

TABLES: Final = tuple(table.name for table in (*ALL_TABLES, *INTERVAL_TABLES))

_INTERVALS: Final = tuple(table.name for table in INTERVAL_TABLES)
"""Names of the interval tables. They can be rebuilt, so an unusable one is treated as missing."""

_YOUNG_S: Final = 3_600.0
"""Age in seconds below which a file is kept. The interval tables may not have its changes yet."""

_LOOK_BACK: Final = 5_000
"""Number of versions that usually contain a checkpoint. Without one, the whole log is listed."""


class LocalReplica:
    """A local copy of a lake. For one thread.

    Args:
        store: Object store of the lake.
        folder: Folder of the copy.

    Attributes:
        versions: By table, the newest version that both store and copy have. Missing tables have no key.
        checkpoints: By table, the version of the last checkpoint that both have. Tables without one have no key.
        known: By path, the objects of the store that are replaced rather than added.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.versions: dict[str, int] = {}
        self.checkpoints: dict[str, int] = {}
        self.known: dict[str, Tagged] = {}

    def fetch(self) -> None:
        """Bring the copy to the newest version of every table. The first call fetches all logs again.

        Raises:
            SetupError: The lake is of another format, or its tables are damaged.
            StoreError, OSError: Storage failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        marker = self._know(LAKE_FILE)
        (self.folder / LAKE_FILE).unlink(missing_ok=True)
        if marker is not None:
            (self.folder / LAKE_FILE).write_bytes(marker)
        check_format(self.folder)
        for report in (FOLD_STATUS_FILE, FOLD_FAILURE_FILE):
            self._know(report)
            (self.folder / report).unlink(missing_ok=True)  # from an earlier run, and other folds may have run since
        commits = ROUTE_COMMIT_TABLE.name
        self._begin_log(commits, None)
        if commits in self.versions:
            self.follow_log(commits)
            self._fetch_files({commits: self._files(commits)})
        versions = self._versions_to_keep()
        others = [name for name in TABLES if name != commits]
        self.store.side_by_side(lambda name: self._begin_log(name, min(versions[name], default=None)), others)
        self._remove_others(self.follow())

    def follow(self) -> dict[str, dict[str, int]]:
        """Fetch the new commits of the store.

        Returns:
            Sizes in bytes of the files that the copy needs and now has, by table and path.

        Raises:
            SetupError: A table is damaged.
            StoreError, OSError: Storage failed.
        """
        self.store.side_by_side(self.follow_log, list(self.versions))
        needed = {name: self._files(name) for name in self.versions if name not in _INTERVALS}
        self._fetch_files(needed)  # includes routeCommitTable, from which the older versions follow
        needed |= self._follow_intervals()
        kept = self._versions_to_keep()
        for name, files in needed.items():
            needed[name] = self._with_older(name, kept[name], files)
        self._fetch_files(needed)
        return needed

    def remove_old_files(self, name: str) -> None:
        """Remove files of a table that no code reads from the copy: older versions and change feeds.

        The store still has them.

        Raises:
            SetupError: The table is damaged.
            OSError: Storage failed.
        """
        version = self.versions.get(name, -1)
        if version < 0 or (self.folder / name / entry_name(version + 1)).exists():
            return  # an unpublished commit names files that must still be uploaded
        needed = self._with_older(name, self._versions_to_keep()[name], self._files(name))
        self._remove_others({name: needed}, since_s=time.time() - _YOUNG_S)

    def _with_older(self, name: str, versions: set[int], newest: dict[str, int]) -> dict[str, int]:
        """The files of the newest version and of the older versions to keep."""
        for version in versions & set(range(self.versions.get(name, -1))):
            newest = newest | self._files(name, version)
        return newest

    def _versions_to_keep(self) -> dict[str, set[int]]:
        """Versions of each table to keep: at the last epoch, and where a seed begins (`lake.write.seed`)."""
        kept: dict[str, set[int]] = {name: set() for name in TABLES}
        if ROUTE_COMMIT_TABLE.name in self.versions:
            for commit in (last_commit(self.folder), last_exact_commit(self.folder)):
                for name, version in ({} if commit is None else commit.versions).items():
                    kept.get(name, set()).add(version)
        return kept

    def _follow_intervals(self) -> dict[str, dict[str, int]]:
        needed: dict[str, dict[str, int]] = {}
        for name in _INTERVALS:
            if name in self.versions:
                try:
                    needed[name] = self._files(name)
                    self._fetch_files({name: needed[name]})
                except (FileNotFoundError, SetupError) as error:
                    log.warning(
                        "cannot fetch an interval table; it will be rebuilt", table=name, reason=one_line(error)
                    )
                    needed.pop(name, None)
                    self._forget(name)
        return needed

    def _forget(self, name: str) -> None:
        """Remove a table from the copy."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.versions.pop(name, None)
        self.checkpoints.pop(name, None)

    def _begin_log(self, name: str, oldest: int | None) -> None:
        """Fetch the checkpoint from which the log starts, unless the present local log can be continued.

        Args:
            name: Name of the table.
            oldest: Oldest version that must be readable, or None for the newest.
        """
        table = self.folder / name
        pointer = self._know(f"{name}/{LAST_CHECKPOINT}")
        last = None if pointer is None else decode_last_checkpoint(pointer)
        if self._goes_on(name, -1 if last is None else last.version, oldest):
            return
        self.versions.pop(name, None)
        self.checkpoints.pop(name, None)
        shutil.rmtree(table / LOG_FOLDER, ignore_errors=True)
        if last is None and self.store.find(f"{name}/{entry_name(0)}") is None:
            self._forget(name)
            return
        base = -1
        if last is not None:
            base = last.version if oldest is None or oldest >= last.version else self._checkpoint_before(name, oldest)
            for version in {base, last.version} - {-1}:
                file = checkpoint_name(version)
                try:
                    self.store.fetch(f"{name}/{file}", table / file)
                except FileNotFoundError:
                    if name not in _INTERVALS:
                        raise
                    self._forget(name)
                    return
            assert pointer is not None
            (table / LAST_CHECKPOINT).write_bytes(pointer)
            self.checkpoints[name] = last.version
        self.versions[name] = max(base, 0) - 1  # `follow_log` then fetches the entry of the checkpoint's version, too

    def _goes_on(self, name: str, checkpoint: int, oldest: int | None) -> bool:
        """Return True if the local log of a table equals the store's and is no longer than needed."""
        version = self.versions.get(name, -1)
        if version < 0 or self.checkpoints.get(name, -1) < checkpoint <= (checkpoint if oldest is None else oldest):
            return False
        entry = f"{name}/{entry_name(version)}"
        try:
            return self.store.get(entry) == (self.folder / entry).read_bytes()
        except FileNotFoundError:
            return False

    def _checkpoint_before(self, name: str, version: int) -> int:
        """The newest checkpoint up to a version, or -1 if the log must be read from its beginning."""
        for first in (max(0, version - _LOOK_BACK), 0):
            listed = self.store.listed(f"{name}/{LOG_FOLDER}", f"{name}/{entry_name(first)}")
            found = log_versions(one.path.rpartition("/")[2] for one in listed).checkpoints
            if before := [one for one in found if one <= version]:
                return before[-1]
        return -1

    def follow_log(self, name: str) -> None:
        """Fetch the new log entries of a table. Raises StoreError, OSError."""
        first = self.versions[name] + 1
        after = f"{name}/{entry_name(first - 1)}" if first else None
        listed = {found.path for found in self.store.listed(f"{name}/{LOG_FOLDER}", after)}
        # One by one: this runs in a thread of the store's pool, which must not wait for other threads of the pool.
        while (path := f"{name}/{entry_name(first)}") in listed:
            self.store.fetch(path, self.folder / path)
            self.versions[name] = first
            first += 1

    def _files(self, name: str, version: int | None = None) -> dict[str, int]:
        """Sizes in bytes of the files of a table at a version, by path."""
        try:
            found = active(str(self.folder / name), version).files
        except (DamagedTableError, DeltaError) as error:
            raise SetupError(
                f"the table {self.store.url}/{name} cannot be opened: {one_line(error)}. If it is damaged, restore the "
                "lake from a backup."
            ) from error
        return {unquote(file.path): file.size for file in found if file.size is not None}

    def _fetch_files(self, needed: dict[str, dict[str, int]]) -> None:
        missing = [
            f"{name}/{path}"
            for name, files in needed.items()
            for path, size_bytes in files.items()
            if not _has_size(self.folder / name / path, size_bytes)
        ]
        self.store.side_by_side(lambda path: self.store.fetch(path, self.folder / path), missing)

    def _remove_others(self, needed: dict[str, dict[str, int]], since_s: float = math.inf) -> None:
        """Remove files of other versions and interrupted downloads.

        Args:
            needed: Files to keep, by table and path.
            since_s: Files written at this time or later are kept, in seconds since 1970.
        """
        for name, files in needed.items():
            table = self.folder / name
            for file in chain(data_files(table), table.rglob(f"*{PART}")):
                if str(file.relative_to(table)) not in files and file.stat().st_mtime < since_s:
                    file.unlink(missing_ok=True)

    def _know(self, path: str) -> bytes | None:
        """Read an object of the store and remember its tag. From now on only this version is replaced."""
        self.known.pop(path, None)
        found = self.store.find(path)
        if found is None:
            return None
        self.known[path] = found
        return found.data


def _has_size(file: Path, size_bytes: int) -> bool:
    try:
        return file.stat().st_size == size_bytes
    except FileNotFoundError:
        return False

"""The tail of routeCommitTable, read from its Delta log one commit at a time.

Asking whether ``_delta_log/<next version>.json`` is there costs microseconds, needs no table handle that grows, and
works alike on a local disk and (slower) on an object store. What is behind the tail is read through deltalake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
import pyarrow.dataset as pds
import pyarrow.fs as pfs

from api.view.loader import Commit, commits, file_system, is_local
from schemas.tables import ROUTE_COMMIT_TABLE

_LOG: Final = "_delta_log"


class _Add(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True


class _Action(msgspec.Struct):
    """A line of a Delta commit, as far as it matters here."""

    add: _Add | None = None


_decoder = msgspec.json.Decoder(_Action)


Mark = tuple[int, int]
"""Modification time in nanoseconds and size of a commit's file: different if another file stands in its place."""


class CommitLog:
    """Reads single commits of routeCommitTable."""

    def __init__(self, lake_dir: str) -> None:
        """Open nothing yet."""
        self._local = Path(lake_dir, ROUTE_COMMIT_TABLE.name).resolve() if is_local(lake_dir) else None
        self._lake_dir = lake_dir
        self._files: pfs.FileSystem | None = None

    def exists(self, version: int) -> bool:
        """Whether a version has been committed (and its log file not cleaned up)."""
        if self._local is not None:
            return (self._local / _name(version)).exists()
        info = self._file_system().get_file_info(_name(version))
        return bool(info.type == pfs.FileType.File)

    def mark(self, version: int) -> Mark | None:
        """By what the file of a version is known again; None when it is not there (any more)."""
        if self._local is None:
            info = self._file_system().get_file_info(_name(version))
            return (info.mtime_ns or 0, info.size or 0) if info.type == pfs.FileType.File else None
        try:
            found = (self._local / _name(version)).stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size

    def stamp(self) -> int | None:
        """A number that stays the same as long as nothing was added to the log; None where that cannot be told.

        Raises:
            OSError: The log is not there.
        """
        return None if self._local is None else (self._local / _LOG).stat().st_mtime_ns

    def read(self, version: int) -> list[Commit]:
        """The rows that a version appended: one epoch, or none for maintenance.

        Raises:
            OSError: It, or its data, is not there.
            ValueError: It is torn.
        """
        if self._local is not None:
            text = (self._local / _name(version)).read_bytes()
        else:
            with self._file_system().open_input_file(_name(version)) as file:
                text = file.read()
        actions = _decoder.decode_lines(text)
        paths = [unquote(action.add.path) for action in actions if action.add is not None and action.add.data_change]
        if not paths:
            return []
        found = pds.dataset(paths, format="parquet", filesystem=self._file_system())
        return commits(found.to_table())

    def _file_system(self) -> pfs.FileSystem:
        if self._files is None:
            self._files = file_system(self._lake_dir, ROUTE_COMMIT_TABLE)
        return self._files


def _name(version: int) -> str:
    return f"{_LOG}/{version:020d}.json"

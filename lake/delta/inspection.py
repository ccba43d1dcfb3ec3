# SPDX-License-Identifier: Apache-2.0
"""One table as it lies on the disk: which entries of its log and which files are there, and what each version needs.

Readers ask whether the newest version can be read, and stop at the first thing that is wrong (`lake.delta.damage`).
Here all of it is looked at, and nothing is believed: not the pointer, not a checkpoint that another would spare one.

Source: the Delta transaction protocol, "Delta Log Entries", "Checkpoints", "Last Checkpoint File", "Action
Reconciliation".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lake.delta.actions import (
    LOG_FOLDER,
    READER_VERSION,
    File,
    LastCheckpoint,
    Protocol,
    checkpoint_name,
    entry_name,
    read_last_checkpoint,
)

_OF_A_BATCH: Final = ("WRITE", "MERGE")
"""Operations whose commits end with the app transaction (lake/write/writer.py)."""


_DAYS: Final = re.compile(r"interval (\d+) days?")
"""As `lake.delta.ddl` writes it."""


class StoredFile(File):
    """A file as an action names it. ``deletion_timestamp`` is that of a removal, ms since 1970."""

    size: int | None = None
    deletion_timestamp: int | None = None


class _CommitInfo(msgspec.Struct):
    timestamp: int = 0
    operation: str = ""


class _MetaData(msgspec.Struct):
    configuration: dict[str, str] = {}


class _Action(msgspec.Struct, rename="camel"):
    add: StoredFile | None = None
    remove: StoredFile | None = None
    cdc: StoredFile | None = None
    protocol: Protocol | None = None
    meta_data: _MetaData | None = None
    commit_info: _CommitInfo | None = None
    txn: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Action)


class Entry(msgspec.Struct, frozen=True):
    """A commit: what it added, removed, and left for the change feed; when, ms since 1970; the properties it set."""

    added: list[StoredFile]
    removed: list[StoredFile]
    feed: list[StoredFile]
    time_ms: int
    properties: dict[str, str] | None = None


class UnreadableError(ValueError):
    """An entry, a checkpoint or the pointer is not what it should be; says how."""


def read_entry(path: Path) -> Entry:
    """A commit's file.

    Raises:
        UnreadableError: It is torn, cut or of another protocol.
        OSError: It cannot be read.
    """
    text = path.read_bytes()
    try:
        actions = _decoder.decode_lines(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(f"is torn: {len(text)} bytes, which are no whole commit ({error})") from error
    if not actions:
        raise UnreadableError("is empty")
    for action in actions:
        if action.protocol is not None and action.protocol.min_reader_version > READER_VERSION:
            raise UnreadableError(
                f"needs version {action.protocol.min_reader_version} of the Delta protocol: another program wrote it"
            )
    infos = [action.commit_info for action in actions if action.commit_info is not None]
    if any(info.operation in _OF_A_BATCH for info in infos) and not any(action.txn for action in actions):
        raise UnreadableError("is cut after a line: it lacks its batch's transaction, which comes last")
    return Entry(
        [action.add for action in actions if action.add is not None],
        [action.remove for action in actions if action.remove is not None],
        [action.cdc for action in actions if action.cdc is not None],
        infos[0].timestamp if infos else 0,
        next((action.meta_data.configuration for action in actions if action.meta_data is not None), None),
    )


class TableOnDisk:
    """One table's folder, read once. Nothing is written.

    Attributes:
        path: The folder.
        entries: Readable commits by version.
        torn: Commits that cannot be read: why, by version.
        absent: Versions whose commits are missing. Clean-up leaves no hole, and takes nothing without a checkpoint.
        checkpoints: Versions that have a checkpoint of one file.
        pointer: The last checkpoint as ``_last_checkpoint`` names it; None without one.
        pointer_error: Why the pointer cannot be used; None if it can, or there is none.

    Raises:
        OSError: The folder or its log cannot be listed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[int, Entry] = {}
        self.torn: dict[int, str] = {}
        names = {entry.name for entry in os.scandir(path / LOG_FOLDER)}
        numbers = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        suffix = ".checkpoint.parquet"
        self.checkpoints = sorted(int(name[: -len(suffix)]) for name in names if name.endswith(suffix))
        for version in numbers:
            try:
                self.entries[version] = read_entry(path / entry_name(version))
            except FileNotFoundError:
                continue  # cleaned up at this moment
            except (UnreadableError, OSError) as error:
                self.torn[version] = str(error)
        newest = max([*numbers, *self.checkpoints], default=-1)
        # The log is cleaned from its old end, of what a checkpoint has.
        first = min(numbers, default=0) if self.checkpoints else 0
        there = set(numbers)
        self.absent = [version for version in range(first, newest + 1) if version not in there]
        self.newest = newest
        self.pointer: LastCheckpoint | None = None
        self.pointer_error: str | None = None
        try:
            self.pointer = read_last_checkpoint(path)
        except (OSError, ValueError) as error:
            self.pointer_error = f"cannot be read ({error})"
        if self.pointer is not None and self.pointer.parts is None and self.pointer.version not in self.checkpoints:
            self.pointer_error = f"names the checkpoint of version {self.pointer.version}, which is missing"
        self._bases: dict[int, dict[str, StoredFile] | str] = {}

    def checkpoint_error(self, version: int) -> str | None:
        """Why a checkpoint cannot be read; None if it can."""
        found = self._base(version)
        return found if isinstance(found, str) else None

    def files_at(self, version: int) -> dict[str, StoredFile] | None:
        """The files of a version by path, as the log says; None where the log does not lead to it."""
        for checkpoint in reversed([number for number in self.checkpoints if number <= version]):
            base = self._base(checkpoint)
            if isinstance(base, dict):
                found = self._replay(dict(base), checkpoint + 1, version)
                if found is not None:
                    return found
        return self._replay({}, 0, version)

    def retention_days(self) -> int | None:
        """For how long vacuum keeps removed files, as the table itself says; None where it does not."""
        set_by = (entry.properties for _, entry in sorted(self.entries.items(), reverse=True))
        properties = next((found for found in set_by if found is not None), None)
        if properties is None:
            properties = next(filter(None, map(self._properties_at, reversed(self.checkpoints))), {})
        said = _DAYS.fullmatch(properties.get("delta.deletedFileRetentionDuration", ""))
        return None if said is None else int(said[1])

    def _properties_at(self, checkpoint: int) -> dict[str, str]:
        path = self.path / checkpoint_name(checkpoint)
        try:
            rows = pq.read_table(path, columns=["metaData"], partitioning=None)["metaData"].to_pylist()
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return {}
        return next((dict(row["configuration"] or {}) for row in rows if row is not None), {})

    def newest_readable(self) -> int:
        """The greatest version that the log leads to; -1 for none."""
        for version in range(self.newest, -1, -1):
            if self.files_at(version) is not None:
                return version
        return -1

    @cached_property
    def present(self) -> dict[str, int]:
        """Every file below the table but its log's, by path: size in bytes."""
        return dict(self._walk(self.path, ""))

    def missing(self, files: Mapping[str, StoredFile]) -> list[StoredFile]:
        """Those that are not there, or not of the size that they were written with."""
        return [
            file
            for path, file in files.items()
            if (size := self.present.get(unquote(path))) is None or file.size not in (None, size)
        ]

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
        for found in os.scandir(folder):
            name = prefix + found.name
            if found.is_dir(follow_symlinks=False):
                if name != LOG_FOLDER:
                    yield from self._walk(Path(found.path), name + "/")
            else:
                try:
                    yield name, found.stat().st_size
                except FileNotFoundError:
                    continue

    def _base(self, version: int) -> dict[str, StoredFile] | str:
        if version not in self._bases:
            try:
                self._bases[version] = _read_checkpoint(self.path / checkpoint_name(version))
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                self._bases[version] = " ".join(str(error).split()) or type(error).__name__
        return self._bases[version]

    def _replay(self, files: dict[str, StoredFile], first: int, last: int) -> dict[str, StoredFile] | None:
        for version in range(first, last + 1):
            entry = self.entries.get(version)
            if entry is None:
                return None
            for file in entry.removed:
                files.pop(file.path, None)
            for file in entry.added:
                files[file.path] = file
        return files


def _read_checkpoint(path: Path) -> dict[str, StoredFile]:
    with pq.ParquetFile(path) as checkpoint:
        wanted = ["add.path", "add.partitionValues", "add.stats", "add.size"]
        adds = checkpoint.read(wanted, use_threads=False)["add"].to_pylist()
    return {
        add["path"]: StoredFile(
            path=add["path"],
            partition_values=dict(add["partitionValues"] or {}),
            stats=add["stats"],
            size=add["size"],
        )
        for add in adds
        if add is not None and add["path"] is not None
    }

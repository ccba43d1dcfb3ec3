# SPDX-License-Identifier: Apache-2.0
"""Manifest of a backup. It names every file of the backup, and a folder without it is no backup.

===========  ==============================================================================
backup.json  the manifest, written last
lake/        lake.json and every table, up to its version of one epoch
events.db    the event log up to that epoch or later; missing for an event log in Kafka
===========  ==============================================================================
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from eventlog.sqlite.file import read_log_id, sqlite_errors
from eventlog.sqlite.start import check_extent, read_generation
from lake.delta.ddl import check_format
from runtime.machine import acting_as_root
from runtime.version import PROGRAM
from schemas.errors import SetupError, one_line
from schemas.tables import ALL_TABLES

FORMAT_VERSION: Final = 1
MANIFEST: Final = "backup.json"
LAKE: Final = "lake"
LOG: Final = "events.db"

_CHUNK_BYTES: Final = 1024 * 1024
_MOST_PATH_BYTES: Final = 2048
_MOST_NAME_BYTES: Final = 255
"""NAME_MAX of Linux."""


class File(msgspec.Struct, rename="camel", frozen=True):
    """A file. ``path`` is relative to the backup, ``sha256`` in hexadecimal digits."""

    path: str
    bytes: int
    sha256: str


class Log(msgspec.Struct, rename="camel", frozen=True):
    """The event log.

    Attributes:
        kind: sqlite (the event log is in the backup) or kafka.
        log_id: See `eventlog.base.EventLog.log_id`.
        first_offset: Offset of the oldest record, or None for kafka.
        next_offset: The offset after the last record, at the time of the backup.
        url: URL of an event log in Kafka.
    """

    kind: str
    log_id: str
    next_offset: int
    first_offset: int | None = None
    url: str | None = None


class Lake(msgspec.Struct, rename="camel", frozen=True):
    """One consistent state of all tables.

    Attributes:
        epoch: The last epoch, or 0 in a lake without any.
        log_offset: Offset up to which all events are in the tables, or 0 in a lake without an epoch.
        needs_from: Offset of the oldest record that a start of the fold reads.
        event_time: Event time of log_offset, ISO 8601, or None without an epoch.
        versions: Table name to Delta version.
    """

    epoch: int
    log_offset: int
    needs_from: int
    event_time: str | None
    versions: dict[str, int]


class Manifest(msgspec.Struct, rename="camel", frozen=True):
    """Contents of a manifest. ``made_at`` is ISO 8601, UTC. ``files`` are all files except the manifest."""

    format: int
    made_at: str
    lake: Lake
    log: Log
    files: list[File]


def read_manifest(folder: Path, expect: str = "") -> Manifest:
    """Read the manifest of a backup, and check that every path is inside the backup.

    Args:
        folder: Folder of the backup.
        expect: Digest that the manifest must have (SHA-256, hexadecimal). Empty for any.

    Raises:
        SetupError: The manifest is missing or invalid, has a newer format, or is not the expected one.
    """
    path = folder / MANIFEST
    try:
        with open_inside(folder, MANIFEST) as file:
            text = file.read()
        digest = hashlib.sha256(text).hexdigest()
        if expect and expect.strip().lower() != digest:
            raise SetupError(
                f"{path} has the digest {digest}, and --expect says {expect}. Use the backup that has the expected one."
            )
        found = msgspec.json.decode(text, type=dict[str, object]).get("format")
        if isinstance(found, int) and found > FORMAT_VERSION:
            raise SetupError(
                f"{folder} is a backup of format {found}, this routelake reads up to {FORMAT_VERSION}. "
                "Upgrade routelake first."
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except OSError as error:
        raise SetupError(
            f"{folder} is not a complete backup: {path.name}, which is written last, cannot be read "
            f"({error.strerror}). Name the folder that `{PROGRAM} backup` reported."
        ) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SetupError(f"{path} is not the manifest of a backup ({error}). Use another backup.") from error
    _check_names(path, manifest)
    return manifest


def manifest_digest(folder: Path) -> str:
    """SHA-256 of the manifest of a backup, hexadecimal. The manifest has the digests of all other files."""
    with open_inside(folder, MANIFEST) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _check_names(path: Path, manifest: Manifest) -> None:
    """Refuse a manifest with a name that is no file of a lake or of the event log, or with a repeated name.

    Raises:
        SetupError: The manifest has such a name.
    """
    tables = {table.name for table in ALL_TABLES}
    if strange := sorted(set(manifest.lake.versions) - tables):
        raise SetupError(f"{path} names a table {strange[0]!r}, which no lake has. Use another backup.")
    seen: set[str] = set()
    for file in manifest.files:
        if why := _why_no_name(file.path):
            raise SetupError(f"{path} names a file {file.path!r}, which {why}. Use another backup.")
        if file.path in seen:
            raise SetupError(f"{path} names the file {file.path!r} twice. Use another backup.")
        seen.add(file.path)
    for name in seen:
        parts = name.split("/")
        if any("/".join(parts[:end]) in seen for end in range(1, len(parts))):
            raise SetupError(f"{path} names a file {name!r} below another file. Use another backup.")


def _why_no_name(name: str) -> str | None:
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "leads out of the backup"
    if any(part in ("", ".") for part in parts) or not name.isprintable() or "\\" in name:
        return "is not a plain path"
    if len(name.encode()) > _MOST_PATH_BYTES or any(len(part.encode()) > _MOST_NAME_BYTES for part in parts):
        return "is too long"
    if name != LOG and (parts[0] != LAKE or len(parts) == 1):
        return f"is neither {LOG} nor below {LAKE}/"
    return None


def open_inside(folder: Path, path: str) -> IO[bytes]:
    """Open a regular file inside a folder for reading, without following links inside the folder.

    Args:
        folder: The folder, which may be a link itself.
        path: Relative path without ``.`` and ``..``.

    Raises:
        OSError: The file is missing, is a link or below a link, or is no regular file.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *parents, name = path.split("/")
        for parent in parents:
            at = _descend(at, parent)
        # Without O_NONBLOCK, a pipe without a writer would block.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except OSError as error:
        why = "a link is in the way" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise OSError(error.errno, why, str(folder / path)) from error
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is not a regular file", str(folder / path))
    return os.fdopen(opened, "rb")


def _descend(at: int, name: str) -> int:
    """Open a folder inside an open one, which is then closed. Follow no link. An OSError leaves the outer one open."""
    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    os.close(at)
    return below


def copy_inside(folder: Path, path: str, to: Path, name: str) -> None:
    """Copy a file of one folder into another one, without following links in either. No file is overwritten.

    Args:
        folder: Folder of the file.
        path: Path of the file in the folder.
        to: Folder of the copy.
        name: Path of the copy in its folder. Missing folders are created.

    Raises:
        OSError: As `open_inside`, or there is a file at the path of the copy.
    """
    # The backup may be readable by root alone. The copy is written as the owner, who could have put links there.
    with acting_as_root():
        source = open_inside(folder, path)
    with source:
        copy_into(source, to, name)


def copy_into(source: IO[bytes], to: Path, name: str) -> None:
    """Copy an open file into a new file. As `copy_inside`."""
    at = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        *parents, last = name.split("/")
        for parent in parents:
            with suppress(FileExistsError):
                os.mkdir(parent, dir_fd=at)
            at = _descend(at, parent)
        made = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=at)
    finally:
        os.close(at)
    with os.fdopen(made, "wb") as copy:
        shutil.copyfileobj(source, copy, _CHUNK_BYTES)


def give_to_owner(path: Path, data_dir: Path) -> None:
    """Change the owner of a file or folder made by root to the owner of the data directory. Follow no link.

    Nothing changes if there is no data directory: tables at a URL with an event log in Kafka need none.
    """
    if os.geteuid() != 0 or not data_dir.exists():
        return
    owner = data_dir.stat()
    if owner.st_uid != 0:
        os.lchown(path, owner.st_uid, owner.st_gid)


def describe(folder: Path, path: str) -> File:
    """Read a whole file of a backup, and return its entry for the manifest."""
    digest = hashlib.sha256()
    size = 0
    with open_inside(folder, path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            digest.update(chunk)
    return File(path, size, digest.hexdigest())


def check_backup(folder: Path, manifest: Manifest) -> None:
    """Verify a backup: files by their digests, tables by opening them, the event log by its offsets.

    Raises:
        SetupError: The backup is damaged. The message names the damage.
    """
    check_files(folder, manifest.files)
    check_lake(folder / LAKE, manifest.lake.versions, {file.path for file in manifest.files})
    if manifest.log.kind == "sqlite":
        check_log(folder / LOG, manifest)


def check_files(folder: Path, files: Iterable[File]) -> None:
    """Verify files of a backup, or of its copy, by their digests.

    Raises:
        SetupError: A file is missing or damaged. The message names the file.
    """
    for file in files:
        try:
            found = describe(folder, file.path)
        except OSError as error:
            raise SetupError(
                f"{folder / file.path} cannot be read ({error.strerror}), but belongs to the backup. Use another one."
            ) from error
        if found != file:
            raise SetupError(
                f"{folder / file.path} differs from the backed-up file: it was changed. Use another backup."
            )


def check_lake(lake_dir: Path, versions: Mapping[str, int], files: Iterable[str] | None = None) -> None:
    """Open every table at its version, which must be its newest, and check that its files exist.

    Args:
        lake_dir: Folder of the lake.
        versions: Expected versions, by table name.
        files: Existing paths relative to the backup. None checks the folder of the lake.

    Raises:
        SetupError: A table is damaged. The message names the table.
    """
    check_format(lake_dir)
    known = None if files is None else set(files)
    for name, version in versions.items():
        try:
            table = DeltaTable(str(lake_dir / name))
            paths = [unquote(path) for path in table.get_add_actions()["path"].to_pylist()]
        except (DeltaError, OSError) as error:
            raise SetupError(f"the table {lake_dir / name} cannot be opened: {one_line(error)}.") from error
        if table.version() != version:
            raise SetupError(f"the table {lake_dir / name} is at version {table.version()}, not {version}.")
        for path in paths:
            there = (lake_dir / name / path).exists() if known is None else f"{LAKE}/{name}/{path}" in known
            if not there:
                raise SetupError(f"the table {lake_dir / name} lacks its file {path}.")


def check_log(path: Path, manifest: Manifest) -> None:
    """Verify a copy of the event log that no process has opened since.

    Raises:
        SetupError: The copy lacks records, or is of another event log.
    """
    with (
        sqlite_errors(path, "check", at_start=True),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection,
    ):
        extent = check_extent(path, connection, whole=True)
        found = read_log_id(connection), extent.first, extent.end, read_generation(connection)
    if found != (manifest.log.log_id, manifest.log.first_offset, manifest.log.next_offset, ""):
        raise SetupError(f"{path} is not the event log that was backed up. Use another backup.")
    check_reach(path, manifest.lake, extent.first, extent.end)


def check_reach(log: object, lake: Lake, first: int, end: int) -> None:
    """Check that the fold can continue from these tables with an event log of this range of offsets.

    Raises:
        SetupError: Required records are missing.
    """
    if first > lake.needs_from or end <= lake.log_offset:
        raise SetupError(
            f"{log} has the offsets from {first} to {end - 1}; the tables at epoch {lake.epoch} need those from "
            f"{lake.needs_from} on, and include offset {lake.log_offset}."
        )

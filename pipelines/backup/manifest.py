# SPDX-License-Identifier: Apache-2.0
"""What a backup is: a folder with a manifest, which names everything in it. Without the manifest it is none.

===========  ==============================================================================
backup.json  the manifest, written last
lake/        lake.json and every table, up to its version of one epoch
events.db    the event log up to that epoch or later; not where the log is in Kafka
===========  ==============================================================================
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lake.ddl import check_format
from pipelines.log.sqlite_file import read_log_id, sqlite_errors
from pipelines.log.sqlite_start import check_extent, read_generation
from schemas.errors import SetupError, one_line

FORMAT_VERSION: Final = 1
MANIFEST: Final = "backup.json"
LAKE: Final = "lake"
LOG: Final = "events.db"

_CHUNK_BYTES: Final = 1024 * 1024


class File(msgspec.Struct, rename="camel", frozen=True):
    """A file. ``path`` is relative to the backup, ``sha256`` in hexadecimal digits."""

    path: str
    bytes: int
    sha256: str


class Log(msgspec.Struct, rename="camel", frozen=True):
    """The event log.

    Attributes:
        kind: sqlite (then it is in the backup) or kafka.
        log_id: See `pipelines.log.base.EventLog.log_id`.
        first_offset: Of the oldest record; None for kafka.
        next_offset: The offset after the last record at that time.
        url: Of a Kafka log.
    """

    kind: str
    log_id: str
    next_offset: int
    first_offset: int | None = None
    url: str | None = None


class Lake(msgspec.Struct, rename="camel", frozen=True):
    """One consistent cut of all tables.

    Attributes:
        epoch: The last one; 0 in a lake without any.
        log_offset: Everything up to and including this offset is in the tables; 0 in a lake without an epoch.
        needs_from: The oldest log record that the fold's start asks for.
        event_time: Of log_offset, ISO 8601; None without an epoch.
        versions: Table name to Delta version.
    """

    epoch: int
    log_offset: int
    needs_from: int
    event_time: str | None
    versions: dict[str, int]


class Manifest(msgspec.Struct, rename="camel", frozen=True):
    """``made_at`` is ISO 8601, UTC; ``files`` are all but the manifest itself."""

    format: int
    made_at: str
    lake: Lake
    log: Log
    files: list[File]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        SetupError: There is none, or it is not ours, or of a newer format.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
        found = msgspec.json.decode(text, type=dict[str, object]).get("format")
        if isinstance(found, int) and found > FORMAT_VERSION:
            raise SetupError(
                f"{folder} is a backup of format {found}, this routelake reads up to {FORMAT_VERSION}. "
                "Upgrade routelake first."
            )
        return msgspec.json.decode(text, type=Manifest)
    except OSError as error:
        raise SetupError(
            f"{folder} is not a complete backup: {path.name}, which is written last, cannot be read "
            f"({error.strerror}). Name the folder that `./routelake backup` reported."
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is not the manifest of a backup ({error}). Use another backup.") from error


def describe(folder: Path, path: Path) -> File:
    """A file of a backup, which is read in full."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            digest.update(chunk)
    return File(path.relative_to(folder).as_posix(), size, digest.hexdigest())


def check_backup(folder: Path, manifest: Manifest) -> None:
    """Prove a backup, or a copy of one: files by their digests, tables by opening them, the log by its offsets.

    Raises:
        SetupError: Names what is wrong.
    """
    for file in manifest.files:
        try:
            found = describe(folder, folder / file.path)
        except OSError as error:
            raise SetupError(
                f"{folder / file.path} cannot be read ({error.strerror}), but belongs to the backup. Use another one."
            ) from error
        if found != file:
            raise SetupError(f"{folder / file.path} is not what was backed up: it was changed. Use another backup.")
    check_lake(folder / LAKE, manifest.lake.versions, {file.path for file in manifest.files})
    if manifest.log.kind == "sqlite":
        check_log(folder / LOG, manifest)


def check_lake(lake_dir: Path, versions: Mapping[str, int], files: Iterable[str] | None = None) -> None:
    """Open every table at its version, which is its newest, and look for its files.

    Args:
        lake_dir: The lake.
        versions: By table name.
        files: Paths relative to the backup that are there; None looks into the lake.

    Raises:
        SetupError: Names the table.
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
    """Prove a copy of the log, which nobody has opened since.

    Raises:
        SetupError: It lacks records, or is another log.
    """
    with (
        sqlite_errors(path, "check", at_start=True),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection,
    ):
        extent = check_extent(path, connection, whole=True)
        found = read_log_id(connection), extent.first, extent.end, read_generation(connection)
    if found != (manifest.log.log_id, manifest.log.first_offset, manifest.log.next_offset, ""):
        raise SetupError(f"{path} is not the log that was backed up. Use another backup.")
    check_reach(path, manifest.lake, extent.first, extent.end)


def check_reach(log: object, lake: Lake, first: int, end: int) -> None:
    """Make sure that the fold can go on from these tables with a log that has these offsets.

    Raises:
        SetupError: Records that it needs are missing.
    """
    if first > lake.needs_from or end <= lake.log_offset:
        raise SetupError(
            f"{log} has the offsets from {first} to {end - 1}; the tables at epoch {lake.epoch} need those from "
            f"{lake.needs_from} on, and were folded up to {lake.log_offset}."
        )

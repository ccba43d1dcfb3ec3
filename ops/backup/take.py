# SPDX-License-Identifier: Apache-2.0
"""Creation of a backup while gateways and the fold run.

A Delta table consists of files that never change, and log entries that name them. So the last row of routeCommitTable
determines the files to copy: the log of each table up to the version in that row, and the data files. Later commits of
the fold are left out. The event log is copied last, by SQLite's online backup, which reads one snapshot and blocks no
process. If the event log is newer than the tables, the fold processes the rest. If it were older, it would be refused.

The backup is built in ``DIR.unfinished``, and a rename completes it.

Source: https://sqlite.org/backup.html; the Delta transaction protocol, "Delta Log Entries".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec
from deltalake.exceptions import DeltaError

from eventlog.open import open_log
from eventlog.sqlite.file import connect_reader, read_log_id, refuse_moved, sqlite_errors
from eventlog.sqlite.start import LockedLog, check_extent, clear_generation, prove
from eventlog.urls import sqlite_path
from lake.commits import last_commit, last_exact_commit, needs_from
from lake.delta.ddl import LAKE_FILE, check_format
from lake.delta.log import LOG_FOLDER, DamagedTableError, active, point_to_checkpoint
from ops.backup.manifest import (
    FORMAT_VERSION,
    LAKE,
    LOG,
    MANIFEST,
    File,
    Lake,
    Log,
    Manifest,
    check_backup,
    check_reach,
    copy_into,
    describe,
    give_to_owner,
    open_inside,
)
from runtime.disk import sync_folder
from runtime.machine import acting_as_owner
from schemas.errors import SetupError, one_line
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE

_UNFINISHED: Final = ".unfinished"
_LOCK: Final = "unfinished.lock"


def take_backup(data_dir: Path, log_url: str, target: Path, *, lake_dir: Path | None = None) -> Manifest:
    """Back up a data directory. If run by root, it acts with the rights of the data directory's owner.

    Args:
        data_dir: Data directory with the lake.
        log_url: URL of the event log. An event log in SQLite is copied. For Kafka, only its offsets are recorded.
        target: Folder of the backup, missing or empty. Its parent is created.
        lake_dir: Folder of the lake, if it is not in the data directory.

    Returns:
        The manifest of the backup.

    Raises:
        SetupError: The backup failed, and its files were removed.
        UnavailableError: Another process locks the event log, or Kafka cannot be reached.
    """
    lake_dir = data_dir / LAKE if lake_dir is None else lake_dir
    if not (lake_dir / LAKE_FILE).exists():
        raise SetupError(
            f"{lake_dir} contains no lake to back up. Set --data-dir to the data directory of a routelake."
        )
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise SetupError(f"{target} is not empty. Name a folder that does not exist yet.")
        with _unfinished(target, data_dir) as work:
            with acting_as_owner(data_dir):
                manifest = _copy(lake_dir, log_url, work)
                check_backup(work, manifest)
                copy_into(BytesIO(msgspec.json.format(msgspec.json.encode(manifest))), work, MANIFEST)
            (work / _LOCK).unlink()
            os.sync()
            work.replace(target)
            sync_folder(target.parent)
    except OSError as error:
        raise SetupError(
            f"the backup {target} cannot be written: {error.filename or ''} {error.strerror}. The incomplete backup "
            "was removed. If the disk is full, free some space on it or choose another one; the owner of the data "
            "directory must be able to write there."
        ) from error
    return manifest


@contextlib.contextmanager
def _unfinished(target: Path, data_dir: Path) -> Iterator[Path]:
    """Context with the folder that becomes the target. A folder left by a killed process is removed first."""
    work = target.absolute().with_name(target.name + _UNFINISHED)
    lock = work / _LOCK
    if work.is_symlink() or (work.exists() and not lock.exists()):
        raise SetupError(f"{work} already exists. Move it away.")
    work.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another backup to {target} is running.") from error
        for left in work.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            elif left != lock:
                left.unlink()
        try:
            give_to_owner(work, data_dir)
            yield work
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


def _copy(lake_dir: Path, log_url: str, work: Path) -> Manifest:
    made_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    with contextlib.ExitStack() as held:
        path = sqlite_path(log_url) if log_url.startswith("sqlite:") else None
        if path is not None:
            held.enter_context(closing(_hold(path)))
        lake, files = _copy_lake(lake_dir, work)
        log = _note_kafka(log_url) if path is None else _copy_log(path, work / LOG)
        if path is not None:
            files.append(describe(work, LOG))
    check_reach("the event log" if path is None else path, lake, log.first_offset or 0, log.next_offset)
    return Manifest(FORMAT_VERSION, made_at, lake, log, files)


def _copy_lake(lake_dir: Path, work: Path) -> tuple[Lake, list[File]]:
    (work / LAKE).mkdir()
    # lake.json comes first, so that its level was valid before the files were copied.
    _copy_file(lake_dir, lake_dir / LAKE_FILE, work)
    check_format(work / LAKE)
    try:
        lake = _last_epoch(lake_dir)
    except (DamagedTableError, DeltaError, OSError, ValueError) as error:
        raise SetupError(f"the lake {lake_dir} cannot be read: {one_line(error)}.") from error
    for name, version in lake.versions.items():
        _copy_table(lake_dir, name, work, version)
    files = sorted(path for path in (work / LAKE).rglob("*") if path.is_file())
    return lake, [describe(work, path.relative_to(work).as_posix()) for path in files]


def _last_epoch(lake_dir: Path) -> Lake:
    """The last epoch, and the records that a start from it needs (`lake.write.seed`)."""
    version, files = active(str(lake_dir / ROUTE_COMMIT_TABLE.name))
    versions = {table.name: 0 for table in ALL_TABLES} | {ROUTE_COMMIT_TABLE.name: version}
    last = last_commit(lake_dir, files)
    if last is None:
        return Lake(0, 0, 1, None, versions)
    return Lake(
        epoch=last.epoch,
        log_offset=last.log_offset,
        needs_from=needs_from(last_exact_commit(lake_dir, files)),
        event_time=last.event_time.isoformat(),
        versions=versions | last.versions,
    )


def _copy_table(lake_dir: Path, name: str, work: Path, version: int) -> None:
    """Copy a table up to a version, with all its kept history."""
    table, target = lake_dir / name, work / LAKE / name
    (target / LOG_FOLDER).mkdir(parents=True)
    checkpointed = -1
    # The log comes first, as the files of an entry exist before the entry.
    for entry in sorted((table / LOG_FOLDER).iterdir()):
        number, _, kind = entry.name.partition(".")
        wanted = number.isdigit() and int(number) <= version and kind.endswith(("json", "parquet"))
        if wanted and _copy_file(lake_dir, entry, work) and kind == "checkpoint.parquet":
            checkpointed = int(number)
    if checkpointed >= 0:
        point_to_checkpoint(target, checkpointed)
    for file in sorted(table.rglob("*.parquet")):
        within = file.relative_to(table)
        if within.parts[0] != LOG_FOLDER:
            _copy_file(lake_dir, file, work)


def _copy_file(lake_dir: Path, file: Path, work: Path) -> bool:
    """Copy a file. Return False if it was deleted: retention deletes files, but none of the copied version."""
    within = file.relative_to(lake_dir).as_posix()
    try:
        source = open_inside(lake_dir, within)
    except FileNotFoundError:
        return False
    with source:
        copy_into(source, work / LAKE, within)
    return True


def _hold(path: Path) -> LockedLog:
    """Lock the event log, so that it is not replaced meanwhile. If no other process has it open, verify it."""
    if not path.exists():
        raise SetupError(f"there is no event log {path}. Correct --data-dir or --event-log.")
    held = LockedLog(path)
    try:
        if held.alone:
            with sqlite_errors(path, "open", at_start=True):
                prove(path)
        held.share()
    except BaseException:
        held.close()
        raise
    return held


def _copy_log(path: Path, target: Path) -> Log:
    with (
        sqlite_errors(path, "back up", at_start=True),
        closing(connect_reader(path)) as source,
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        refuse_moved(source, path)
        copy.execute("PRAGMA synchronous = OFF")  # everything is synced at the end
        source.backup(copy)  # all pages in one step, and so from one snapshot
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("BEGIN")
        clear_generation(copy)
        copy.execute("COMMIT")
        extent = check_extent(path, copy, whole=False)
        return Log("sqlite", read_log_id(copy), extent.end, extent.first)


def _note_kafka(url: str) -> Log:
    with closing(open_log(url)) as log:
        return Log("kafka", log.log_id, log.end().next_offset, url=url.partition("?")[0])

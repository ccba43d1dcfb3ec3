# SPDX-License-Identifier: Apache-2.0
"""Restore: replaces the contents of a data directory by a backup.

1. Lock the fold, the event log and the data directory. If another process holds a lock, the restore is refused.
2. Copy the backup into ``restore.unfinished.*``, and verify the copy.
3. Write the marker (`ops.backup.marker`). If this process dies from now on, no process starts in the data directory.
4. Move the present files into ``before-restore-<time>``: tables, checkpoint, event log with -wal and -shm. No file is
   deleted.
5. Move the copy into place, open the result once more, and delete the marker.

An error before the end of step 5 moves the previous files back. After a kill, the same command starts again and moves
aside all files that it finds. The fold makes its checkpoint from the tables. The event log begins a new generation
(`eventlog.sqlite.start`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from eventlog.sqlite.file import read_log_id, sqlite_errors
from eventlog.sqlite.start import LockedLog, check_extent, prove
from eventlog.urls import sqlite_path
from lake.delta.ddl import LOCK_FILE, lock_lake
from ops.backup.manifest import (
    LAKE,
    LOG,
    Manifest,
    check_backup,
    check_files,
    check_lake,
    check_log,
    check_reach,
    copy_inside,
    describe,
    give_to_owner,
    read_manifest,
)
from ops.backup.marker import MARKER, read_marker, write_marker
from runtime.disk import sync_folder
from runtime.machine import acting_as_owner, acting_as_root
from schemas.errors import SetupError

_STAGING: Final = "restore.unfinished."
"""Prefix of the names of staging folders. The suffix is random, so that no other user can create the folder first."""
_LOG_FILES: Final = ("", "-wal", "-shm", "-journal")


@dataclass
class Restored:
    """Result of a restore or of its dry run: ``aside`` are (from, to) of the files that were there."""

    manifest: Manifest
    aside: list[tuple[Path, Path]] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)


def restore(
    backup: Path, data_dir: Path, log_url: str, *, keep_log: bool = False, dry_run: bool = False, expect: str = ""
) -> Restored:
    """Restore a backup. If run by root, it acts with the rights of the data directory's owner.

    Args:
        backup: Folder of the backup, which is not changed.
        data_dir: Data directory to restore, which is created if missing.
        log_url: URL of the event log.
        keep_log: Keep the present event log and restore only the tables. The fold then processes its later events
            again. An event log in Kafka requires this.
        dry_run: Verify the backup and the locks, and change nothing.
        expect: Digest that the manifest of the backup must have. Empty for any.

    Raises:
        SetupError: The restore is impossible. All files are in place, or the message says where they are.
        UnavailableError: The event log is locked.
    """
    try:
        manifest = read_manifest(backup, expect)
        if data_dir.exists() and data_dir.samefile(backup):
            raise SetupError(f"{backup} is the backup itself. Set --data-dir to another folder.")
        kafka = log_url.startswith("kafka:")
        if kafka != (manifest.log.kind == "kafka") and not (kafka and keep_log):
            raise SetupError(
                f"the backup has a log of kind {manifest.log.kind}, but --event-log is {log_url}. Set one of this kind."
            )
        log_path = None if kafka else sqlite_path(log_url)
        data_dir.mkdir(parents=True, exist_ok=True)
        with acting_as_owner(data_dir), _alone(data_dir, log_path):
            if dry_run or keep_log:
                with acting_as_root():  # only to read (see `copy_inside`)
                    check_backup(backup, manifest)
            if keep_log and log_path is not None:
                _check_kept_log(log_path, backup, manifest)
            plan = _Plan(backup, data_dir, None if keep_log else log_path, manifest)
            restored = Restored(manifest, plan.aside(), _aside_of_one_cut_off(data_dir))
            if not dry_run:
                plan.stage()
                plan.swap(restored)
            return restored
    except OSError as error:
        raise SetupError(
            f"{backup} cannot be restored into {data_dir}: {error.filename or ''} {error.strerror}. If the disk is "
            "full, free some space on it; the owner of the data directory must be able to write there."
        ) from error


@contextlib.contextmanager
def _alone(data_dir: Path, log_path: Path | None) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        opened = os.open(data_dir, os.O_RDONLY)
        held.callback(os.close, opened)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another restore into {data_dir} is running.") from error
        for name in (LAKE, "checkpoints"):
            if (data_dir / name).is_symlink():
                raise SetupError(
                    f"{data_dir / name} is a link, and a restore follows no links. "
                    "Restore into a data directory without links."
                )
        if (data_dir / LAKE).is_dir():
            held.enter_context(closing(lock_lake(data_dir / LAKE)))
        if log_path is not None:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            lock = LockedLog(log_path)
            held.enter_context(closing(lock))
            if not lock.alone:
                raise SetupError(
                    f"the event log {log_path} is in use. Stop routelake (serve, gateway, fold) first. Find the "
                    f"processes with `fuser -v {log_path}-lock`"
                )
        yield


def _check_kept_log(log_path: Path, backup: Path, manifest: Manifest) -> None:
    """Check that the present event log has all records after the tables of the backup."""
    if not log_path.exists():
        raise SetupError(f"there is no event log {log_path} to keep. Restore without --keep-log.")
    last = manifest.lake.log_offset
    found = []
    with sqlite_errors(log_path, "open", at_start=True):
        prove(log_path)
        for path, how in ((log_path, "mode=ro"), (backup / LOG, "immutable=1")):
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
                if path == log_path:
                    extent = check_extent(path, connection, whole=False)
                row = connection.execute("SELECT * FROM event WHERE offset = ?", (last,)).fetchone()
                found.append((read_log_id(connection), row))
    check_reach(log_path, manifest.lake, extent.first, extent.end)
    if found[0] != found[1] or (last and found[0][1] is None):
        raise SetupError(
            f"{log_path} is not the event log of these tables: its record at offset {last} differs or is missing. "
            "Restore without --keep-log."
        )


def _aside_of_one_cut_off(data_dir: Path) -> list[str]:
    found = (read_marker(data_dir) or {}).get("aside")
    return [str(name) for name in found] if isinstance(found, list) else []


class _Plan:
    """Steps of one restore. Without ``log_path``, the event log is kept."""

    def __init__(self, backup: Path, data_dir: Path, log_path: Path | None, manifest: Manifest) -> None:
        self._backup = backup
        self._data_dir = data_dir
        self._log_path = log_path
        self._manifest = manifest
        unique = _STAGING + secrets.token_hex(8)
        self._staging = data_dir / unique
        # In the folder of the event log, which may be on another file system.
        self._staged_log = None if log_path is None else log_path.with_name(f"{log_path.name}.{unique}")
        self._time = datetime.now(UTC).strftime("before-restore-%Y%m%dT%H%M%S.%fZ")

    def aside(self) -> list[tuple[Path, Path]]:
        """Existing files and the places to which they are moved."""
        moves = [(self._data_dir / name, self._data_dir / self._time / name) for name in (LAKE, "checkpoints")]
        if self._log_path is not None:
            folder = self._log_path.parent / self._time
            files = [self._log_path.with_name(self._log_path.name + suffix) for suffix in _LOG_FILES]
            moves += [(file, folder / file.name) for file in files]
        return [(old, new) for old, new in moves if old.exists()]

    def stage(self) -> None:
        """Copy the backup into the staging folder, and verify the copy."""
        self._clear_cut_off()
        self._staging.mkdir()
        try:
            files = [file for file in self._manifest.files if file.path != LOG]
            for file in files:
                copy_inside(self._backup, file.path, self._staging, file.path)
            check_files(self._staging, files)
            check_lake(self._staging / LAKE, self._manifest.lake.versions, [file.path for file in files])
            if self._staged_log is not None:
                copy_inside(self._backup, LOG, self._staged_log.parent, self._staged_log.name)
                staged = describe(self._staged_log.parent, self._staged_log.name)
                if msgspec.structs.replace(staged, path=LOG) not in self._manifest.files:
                    raise SetupError(
                        f"{self._backup / LOG} differs from the backed-up file: it was changed. Use another backup."
                    )
                check_log(self._staged_log, self._manifest)
            self._give_to_owner()
            os.sync()
        except BaseException:
            self._unstage()
            raise

    def _clear_cut_off(self) -> None:
        """Remove the staging folders of killed restores. A link with such a name is not followed."""
        for folder in self._data_dir.glob(f"{_STAGING}*"):
            shutil.rmtree(folder, ignore_errors=True)
        if self._log_path is not None:
            for file in self._log_path.parent.iterdir():
                if file.name.startswith(f"{self._log_path.name}.{_STAGING}"):
                    file.unlink()

    def swap(self, restored: Restored) -> None:
        """Move the present files aside, and the copy into place."""
        aside = sorted({str(new.parent) for _, new in restored.aside})
        moves = [*restored.aside, (self._staging / LAKE, self._data_dir / LAKE)]
        if self._log_path is not None and self._staged_log is not None:
            moves.append((self._staged_log, self._log_path))
        moved: list[tuple[Path, Path]] = []
        with contextlib.ExitStack() as held:
            try:
                write_marker(self._data_dir, self._backup, [*restored.cut_off, *aside])
                sync_folder(self._data_dir)
                # A fold that starts meanwhile finds the new lake locked, too.
                held.enter_context(closing(lock_lake(self._staging / LAKE)))
                give_to_owner(self._staging / LAKE / LOCK_FILE, self._data_dir)
                for folder in aside:
                    Path(folder).mkdir()
                    give_to_owner(Path(folder), self._data_dir)
                for old, new in moves:
                    old.rename(new)
                    moved.append((old, new))
                check_lake(self._data_dir / LAKE, self._manifest.lake.versions)
                if self._log_path is not None:
                    check_log(self._log_path, self._manifest)
                for parent in {self._data_dir, *(new.parent for _, new in moves)}:
                    sync_folder(parent)
            except BaseException:
                self._put_back(moved, aside, restored.cut_off)
                raise
            (self._data_dir / MARKER).unlink()
            sync_folder(self._data_dir)
        self._unstage()

    def _put_back(self, moved: list[tuple[Path, Path]], aside: list[str], cut_off: list[str]) -> None:
        """Undo `swap`. The marker goes last: of an earlier restore that was interrupted, it stays."""
        for old, new in reversed(moved):
            new.rename(old)
        for folder in aside:
            with contextlib.suppress(FileNotFoundError):
                Path(folder).rmdir()
        self._unstage()  # frees space for the marker
        if cut_off:
            write_marker(self._data_dir, self._backup, cut_off)
        else:
            (self._data_dir / MARKER).unlink(missing_ok=True)

    def _give_to_owner(self) -> None:
        """Give staged files to the owner if root could not act as the owner."""
        for path in [self._staging, *self._staging.rglob("*"), *filter(None, [self._staged_log])]:
            give_to_owner(path, self._data_dir)

    def _unstage(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        if self._staged_log is not None:
            self._staged_log.unlink(missing_ok=True)

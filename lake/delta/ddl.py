# SPDX-License-Identifier: Apache-2.0
"""Creation of a lake, and refusal of folders with other contents or another format.

A lake is a folder with ``lake.json``, which has its format version, and one Delta table per entry of schemas.tables.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from lake.delta.log import LOG_FOLDER, DamagedTableError, check_commits, explain
from lake.delta.types import arrow_schema
from lake.store import StoreError, store_of
from runtime.disk import advice, at_start, write_synced
from runtime.version import PROGRAM
from schemas.errors import RoutelakeError, SetupError
from schemas.events import EVENT_LEVEL
from schemas.tables import ALL_TABLES, LAKE_FORMAT_VERSION, STATE_TABLES, Table

LAKE_FILE = "lake.json"
_EVENTS = "events"
"""Key in ``lake.json``: `EVENT_LEVEL` of the newest fold that has opened the lake. Default: 1."""

LOCK_FILE = "fold.lock"
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
"""Escapes in a path. When delta-rs opens the table again, it reads %20 as a space."""


def lock_lake(lake_dir: Path) -> IO[str]:
    """Lock the lake for this process. One fold writes a lake at a time.

    Returns:
        The open lock file. The lock is held while the file is open.

    Raises:
        SetupError: the folder cannot be written, or another fold holds it.
    """
    try:
        lake_dir.mkdir(parents=True, exist_ok=True)
        # Not through a symbolic link, as its target would be written to.
        opened = os.open(lake_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        lock = os.fdopen(opened, "a+", encoding="utf-8")
    except OSError as error:
        raise _cannot_write(lake_dir, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise SetupError(
            f"{lake_dir} is in use by a running fold (process {holder}). Stop it, or choose another --data-dir."
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def is_locked(lake_dir: Path) -> bool:
    """Return True if a fold holds the lake. Leaves no lock that would block a fold."""
    try:
        # for reading, as the file has the process that holds the lake
        with (lake_dir / LOCK_FILE).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def open_lake(lake_dir: Path, *, retention_days: int) -> dict[str, DeltaTable]:
    """Open every table, and create missing tables.

    Args:
        lake_dir: folder of the lake.
        retention_days: days for which history stays readable. Tables with another retention are changed to it.

    Raises:
        SetupError: the folder cannot be used or written, or a folder of a table has other contents. Or the lake has
            another format, or its event log may hold newer events.
        UnavailableError: the disk is full or failing.
    """
    if _ESCAPED.search(str(lake_dir.absolute())):
        raise SetupError(
            f"{lake_dir}: Delta tables cannot be under a path with %20 or the like. Choose another --data-dir."
        )
    _check_events(lake_dir)
    try:
        lake_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(lake_dir, error) from error
    tables = {table.name: open_table(lake_dir / table.name, table, retention_days) for table in ALL_TABLES}
    marker = lake_dir / LAKE_FILE
    if not marker.exists():
        # Last, so that a folder with the marker has every table.
        _write_marker(marker, {"format": LAKE_FORMAT_VERSION})
    _declare_events(marker)
    return tables


def check_format(lake_dir: Path | str) -> None:
    """Refuse a lake of another format, in a folder or at a URL.

    Raises:
        SetupError: The lake has another format or cannot be read. A missing lake is no error.
        StoreError: A request to the store failed.
    """
    _read_marker(lake_dir)


def _read_marker(lake_dir: Path | str) -> dict[str, Any]:
    marker = f"{lake_dir}/{LAKE_FILE}"
    try:
        text = store_of(str(lake_dir)).get(LAKE_FILE) if "://" in str(lake_dir) else Path(marker).read_bytes()
        said: dict[str, Any] = json.loads(text)
        found = said["format"]
    except FileNotFoundError:
        return {}
    except StoreError:
        raise  # a later try may succeed
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise SetupError(
            f"{marker} cannot be read ({error}). Restore it from a backup, or move the lake away."
        ) from error
    if found != LAKE_FORMAT_VERSION:
        older = isinstance(found, int) and found < LAKE_FORMAT_VERSION
        raise SetupError(
            f"{lake_dir} has format {found}, and this routelake reads only format {LAKE_FORMAT_VERSION}. "
            + (
                "Use the release that wrote it, or move the folder away. The fold writes new tables from the event log "
                "if that still has all its records."
                if older
                else "Upgrade routelake first."
            )
        )
    return said


def _check_events(lake_dir: Path) -> None:
    """Refuse a lake if its event log may hold events that this fold does not know. Raises SetupError.

    The fold would put such events into quarantine.
    """
    level = _read_marker(lake_dir).get(_EVENTS, 1)
    if not isinstance(level, int) or level > EVENT_LEVEL:
        raise SetupError(
            f"{lake_dir} was opened by a newer routelake: its event log may contain events of level {level}, and this "
            f"version reads only up to {EVENT_LEVEL}. Upgrade routelake first."
        )


def _declare_events(marker: Path) -> None:
    """Note this fold's event level before any process writes such events. Older folds then refuse the lake."""
    said = json.loads(marker.read_bytes())
    if said.get(_EVENTS, 1) < EVENT_LEVEL:
        _write_marker(marker, {**said, _EVENTS: EVENT_LEVEL})


def _write_marker(marker: Path, said: dict[str, Any]) -> None:
    """Write ``lake.json`` and sync it at once, as no process starts on a lake without it."""
    write_synced(marker, (json.dumps(said) + "\n").encode())


def write_whole(path: Path, text: str) -> None:
    """Write a small file atomically: readers find the old or the new contents. The file is not synced."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def delta_schema(table: Table) -> Schema:
    """Delta schema with column comments."""
    fields = zip(arrow_schema(table), table.columns, strict=True)
    return Schema.from_arrow(pa.schema([field.with_metadata({"comment": column.comment}) for field, column in fields]))


def open_table(path: Path, table: Table, retention_days: int) -> DeltaTable:
    """Open one table, or create it. Raises SetupError and UnavailableError, as `open_lake`."""
    try:
        if DeltaTable.is_deltatable(str(path)):
            check_commits(path)
            opened = DeltaTable(str(path))
        else:
            opened = _create(path, table, retention_days)
        _check_columns(path, opened, table)
        _keep_for(opened, retention_days)
    except (DeltaError, OSError, DamagedTableError) as error:
        raise at_start(error)(
            f"the table {path} cannot be opened: {explain(path, error)}. If the disk is full, free some space on it; "
            f"if the table is damaged, run `{PROGRAM} doctor`, or restore the lake from a backup."
        ) from error
    return opened


def _create(path: Path, table: Table, retention_days: int) -> DeltaTable:
    if _was_cut_off(path):
        shutil.rmtree(path)
    if path.exists() and any(path.iterdir()):
        raise SetupError(f"{path} exists and is not a Delta table. Move it away, or choose another --data-dir.")
    if not os.access(path.parent, os.W_OK):
        raise _cannot_write(path.parent, PermissionError(errno.EACCES, "Permission denied"))
    return DeltaTable.create(
        str(path),
        schema=delta_schema(table),
        mode="error",
        partition_by=list(table.partition_by) or None,
        name=table.name,
        description=table.comment,
        configuration={
            "delta.enableChangeDataFeed": "true" if table in STATE_TABLES else "false",
            "delta.enableDeletionVectors": "false",
            "delta.appendOnly": "false",
            **_retention(retention_days),
        },
    )


def _was_cut_off(path: Path) -> bool:
    """Return True if creation of a table was interrupted before its first commit, which leaves an empty log folder."""
    log = path / LOG_FOLDER
    return (
        log.is_dir()
        and list(path.iterdir()) == [log]
        and not any(entry.is_dir() or entry.suffix in (".json", ".parquet") for entry in log.iterdir())
    )


def _check_columns(path: Path, opened: DeltaTable, table: Table) -> None:
    found, declared = opened.schema().fields, delta_schema(table).fields
    names = [field.name for field in found]
    odd = [field.name for field, ours in zip(found, declared, strict=False) if field.type != ours.type]
    if names != list(table.column_names) or odd:
        expected = list(table.column_names)
        problem = f"other types in columns {odd}" if names == expected else f"columns {names}, expected {expected}"
        raise SetupError(
            f"{path} has {problem}. It was changed, or is not a routelake table. Restore it from a backup."
        )


def _retention(days: int) -> dict[str, str]:
    interval = f"interval {days} days"
    return {"delta.logRetentionDuration": interval, "delta.deletedFileRetentionDuration": interval}


def _keep_for(table: DeltaTable, days: int) -> None:
    """Set the retention in the table's properties, which vacuum and log clean-up obey before their arguments."""
    wanted = _retention(days)
    if not wanted.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(wanted)


def _cannot_write(lake_dir: Path, error: OSError) -> RoutelakeError:
    return at_start(error)(f"cannot write to {lake_dir}: {error.strerror}. {advice(error, '--data-dir')}")

# SPDX-License-Identifier: Apache-2.0
"""Create a lake, and refuse one that is not ours or of another format.

A lake is a folder: ``lake.json`` with its format version, and one Delta table per entry of schemas.tables.
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
from runtime.disk import at_start, write_synced
from runtime.version import PROGRAM
from schemas.errors import RoutelakeError, SetupError
from schemas.events import EVENT_LEVEL
from schemas.tables import ALL_TABLES, LAKE_FORMAT_VERSION, STATE_TABLES, Table

LAKE_FILE = "lake.json"
_EVENTS = "events"
"""In the lake's file: `EVENT_LEVEL` of the newest fold that has opened it; missing: 1."""

LOCK_FILE = "fold.lock"
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
"""delta-rs takes %20 in a path for a space when it looks for the table again."""


def lock_lake(lake_dir: Path) -> IO[str]:
    """Take the lake for this process; one fold writes a lake at a time.

    Returns:
        The open lock file; the lock lives as long as it is open.

    Raises:
        SetupError: the folder cannot be written, or another fold holds it.
    """
    try:
        lake_dir.mkdir(parents=True, exist_ok=True)
        # Not through a link: what it names is written to.
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


def open_lake(lake_dir: Path, *, retention_days: int) -> dict[str, DeltaTable]:
    """Open every table, creating what is missing.

    Args:
        lake_dir: folder of the lake.
        retention_days: how long history stays readable; a table whose properties say otherwise gets this.

    Raises:
        SetupError: the folder cannot be written or used, holds a lake of another format or one whose log may hold newer
            events, or something else stands in a table's place.
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
        SetupError: It is of another format, or cannot be read; one that is not there is fine.
        StoreError: The store cannot be asked.
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
        raise  # it may pass
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
    """Refuse a lake whose log may hold events that this fold would put into quarantine. Raises SetupError."""
    level = _read_marker(lake_dir).get(_EVENTS, 1)
    if not isinstance(level, int) or level > EVENT_LEVEL:
        raise SetupError(
            f"{lake_dir} was opened by a newer routelake: its event log may contain events of level {level}, and this "
            f"version reads only up to {EVENT_LEVEL}. Upgrade routelake first."
        )


def _declare_events(marker: Path) -> None:
    """Before anybody writes events of this level, so that no older fold takes the lake afterwards."""
    said = json.loads(marker.read_bytes())
    if said.get(_EVENTS, 1) < EVENT_LEVEL:
        _write_marker(marker, {**said, _EVENTS: EVENT_LEVEL})


def _write_marker(marker: Path, said: dict[str, Any]) -> None:
    """Without it nothing starts on the lake, so that it is brought to the disk at once."""
    write_synced(marker, (json.dumps(said) + "\n").encode())


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that whoever reads it finds all of it, or what was there before. It is not synced."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def delta_schema(table: Table) -> Schema:
    """Delta schema with column comments."""
    fields = zip(arrow_schema(table), table.columns, strict=True)
    return Schema.from_arrow(pa.schema([field.with_metadata({"comment": column.comment}) for field, column in fields]))


def open_table(path: Path, table: Table, retention_days: int) -> DeltaTable:
    """Open one table, or create it. Raises SetupError, as `open_lake`, or UnavailableError for a disk that is full."""
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
    """Return True if creating a table was interrupted before its first commit: only an empty log folder is there."""
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
    """Vacuum and the clean-up of the log go by the properties of the table, whatever they are asked for."""
    wanted = _retention(days)
    if not wanted.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(wanted)


def _cannot_write(lake_dir: Path, error: OSError) -> RoutelakeError:
    return at_start(error)(
        f"cannot write to {lake_dir}: {error.strerror}. Choose another --data-dir or change its owner."
    )

# SPDX-License-Identifier: Apache-2.0
"""Versions of a lake that are known to be on the disk, and damage that a power loss left in newer ones.

Commits are not synced: the event log has all events, and the event log is synced. The lake's file system is synced as a
whole before events are deleted from the event log. A file of the lake then records the synced versions.

After a power loss, newer files may be truncated, empty or missing in any combination. A name can be on the disk without
its bytes, and a commit without its predecessor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from lake.commits import last_commit
from lake.delta.log import (
    DamagedTableError,
    Entry,
    UnreadableError,
    checkpoint_name,
    damage_of,
    entry_name,
    read_entry,
    read_last_checkpoint,
    versions_of,
)
from runtime.disk import sync_file_system, write_synced
from schemas.errors import one_line
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE

SYNCED_FILE: Final = "synced.json"
"""File in the lake. Without it, all commits after the last checkpoints of the tables are checked."""


class Synced(msgspec.Struct, frozen=True):
    """Contents of the file.

    Attributes:
        versions: By table, the newest version on the disk.
        clean_up_ms: Time of the clean-up clock at the sync (`lake.write.maintenance`), ms since 1970.
    """

    versions: dict[str, int] = {}
    clean_up_ms: int = 0


_decoder = msgspec.json.Decoder(Synced)


def read_synced(lake_dir: Path) -> Synced:
    """Read the synced versions. Empty if the file is missing or cannot be read."""
    try:
        return _decoder.decode((lake_dir / SYNCED_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return Synced()


def sync_lake(lake_dir: Path, versions: Mapping[str, int], clean_up_ms: int | None = None) -> None:
    """Sync a lake to disk, and record the synced versions.

    Args:
        lake_dir: Folder of the lake. This process holds its lock.
        versions: Present versions of the tables. Recorded versions of other tables stay.
        clean_up_ms: As `Synced.clean_up_ms`. None keeps the recorded time.

    Raises:
        OSError: The sync failed.
    """
    sync_file_system(lake_dir)
    known = read_synced(lake_dir)
    found = Synced({**known.versions, **versions}, known.clean_up_ms if clean_up_ms is None else clean_up_ms)
    write_synced(lake_dir / SYNCED_FILE, msgspec.json.encode(found))


class Whole(NamedTuple):
    """Readable part of a table.

    Attributes:
        version: The greatest version up to which all unsynced commits are intact, or -1 for none.
        damage: Description of the damage of the next version, or None if `version` is the newest.
    """

    version: int
    damage: str | None


def whole_up_to(table: Path, synced: int) -> Whole:
    """Read the commits of a table after a version, and all rows of the files that they added.

    Args:
        table: Folder of the table.
        synced: The newest version on the disk, or -1 if that is unknown.
    """
    try:
        newest = max(versions_of(table).entries, default=-1)
        if newest < synced:
            synced = -1  # the table was restored or rolled back
        first = max(synced, _checkpoint(table, synced)) + 1
    except (UnreadableError, OSError) as error:
        return Whole(synced, one_line(error))
    entries: dict[int, Entry] = {}
    damage = None
    for version in range(first, newest + 1):
        path = table / entry_name(version)
        try:
            entries[version] = read_entry(path)
        except FileNotFoundError:
            damage = f"{path} is missing"
            break
        except (UnreadableError, OSError) as error:
            damage = f"{path} {one_line(error)}"
            break
    removed = {file.path for entry in entries.values() for file in entry.removed}
    for version, entry in entries.items():
        for file in (*entry.added, *entry.feed):
            is_needed = synced >= 0 or (file in entry.added and file.path not in removed)  # else vacuum may delete it
            path = table / unquote(file.path)
            if (is_needed or path.exists()) and (why := damage_of(path, file)):
                return Whole(version - 1, f"{path} {why}")
    return Whole(max(entries, default=first - 1), damage)


def whole_tables(lake_dir: Path) -> dict[str, Whole]:
    """The readable part of each existing table of a lake, by name."""
    synced = read_synced(lake_dir).versions
    return {
        table.name: whole_up_to(lake_dir / table.name, synced.get(table.name, -1))
        for table in ALL_TABLES
        if (lake_dir / table.name).is_dir()
    }


def unsynced_damage(lake_dir: Path, whole: Mapping[str, Whole] | None = None) -> str | None:
    """Describe the damage in the unsynced part of a lake. None if that part is intact.

    Args:
        lake_dir: Folder of the lake.
        whole: Result of `whole_tables`, if it is known.
    """
    whole = whole_tables(lake_dir) if whole is None else whole
    for table in whole.values():
        if table.damage is not None:
            return table.damage
    if ROUTE_COMMIT_TABLE.name not in whole:
        return None
    try:
        last = last_commit(lake_dir)
    except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException):
        return None  # a synced part is damaged: opening the tables reports it
    for name, version in ({} if last is None else last.versions).items():
        newest = whole[name].version if name in whole else -1
        if newest < version:
            return f"{lake_dir / name} is at version {newest}, and the last epoch needs version {version}"
    return None


def _checkpoint(table: Path, synced: int) -> int:
    """Version of the last checkpoint, or -1 for none. An unsynced checkpoint is also read completely.

    Raises:
        UnreadableError: The checkpoint cannot be read.
    """
    try:
        last = read_last_checkpoint(table)
    except ValueError:
        return -1  # a new pointer replaces it (`lake.write.staging`)
    if last is None:
        return -1
    path = table / checkpoint_name(last.version)
    if last.version > synced:
        try:
            pq.read_table(path, columns=["add"], partitioning=None, use_threads=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise UnreadableError(f"{path} cannot be read: {one_line(error)}") from error
    return last.version

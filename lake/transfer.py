# SPDX-License-Identifier: Apache-2.0
"""Copying of a whole lake with its history, from an object store into a folder and back.

The result in the folder is an ordinary lake, which can be read, verified and backed up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from lake.delta.ddl import LAKE_FILE, check_format
from lake.delta.log import LAST_CHECKPOINT, LOG_FOLDER
from lake.lease import LEASE_FILE
from lake.store import Store, TakenError
from schemas.errors import SetupError
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE

_COMMITS: Final = ROUTE_COMMIT_TABLE.name
_OTHERS: Final = [table.name for table in (*ALL_TABLES, *INTERVAL_TABLES) if table.name != _COMMITS]


def get(store: Store, lake_dir: Path) -> None:
    """Download a lake. A fold may write to it meanwhile.

    Args:
        store: Object store of the lake.
        lake_dir: Target folder, missing or empty.

    Raises:
        SetupError: The store has no lake or one of another format, or the folder is not empty.
        StoreError, OSError: Reading or writing failed.
    """
    if lake_dir.exists() and any(lake_dir.iterdir()):
        raise SetupError(
            f"{lake_dir} is not empty. Name a data directory that has no tables yet. If a download was interrupted, "
            "delete this folder first."
        )
    marker = store.find(LAKE_FILE)
    if marker is None:
        raise SetupError(f"there is no lake at {store.url}: it has no {LAKE_FILE}.")
    check_format(store.url)
    lake_dir.mkdir(parents=True, exist_ok=True)
    _get_table(store, lake_dir, _COMMITS)  # first, so that the other tables have every version that it names
    for name in _OTHERS:
        _get_table(store, lake_dir, name)
    (lake_dir / LAKE_FILE).write_bytes(marker.data)  # last, so that an interrupted download is no lake


def _get_table(store: Store, lake_dir: Path, name: str) -> None:
    pointer = store.find(f"{name}/{LAST_CHECKPOINT}")  # before the list, so that the list has its checkpoint
    paths = [found.path for found in store.listed(name)]

    def fetch(path: str) -> None:
        with suppress(FileNotFoundError):  # retention may delete files meanwhile, but none of a kept version
            store.fetch(path, lake_dir / path)

    store.side_by_side(fetch, [path for path in paths if path != f"{name}/{LAST_CHECKPOINT}"])
    if pointer is not None:
        (lake_dir / name / LAST_CHECKPOINT).write_bytes(pointer.data)


def put(lake_dir: Path, store: Store) -> None:
    """Upload a lake to an empty URL. No process may write to the lake meanwhile.

    After an interruption, another call continues.

    Raises:
        SetupError: The folder has no lake, or the URL has another lake or a fold's lease.
        StoreError, OSError: Reading or writing failed.
    """
    check_format(lake_dir)
    if not (lake_dir / LAKE_FILE).exists():
        raise SetupError(f"there is no lake in {lake_dir}.")
    if store.find(LEASE_FILE) is not None or store.find(LAKE_FILE) is not None:
        raise SetupError(f"{store.url} already contains a lake. Name an empty prefix.")
    files = [file for name in (_COMMITS, *_OTHERS) for file in _files(lake_dir / name)]

    def put_file(file: Path) -> None:
        store.put(str(file.relative_to(lake_dir)), file)

    logs = [file for file in files if LOG_FOLDER in file.relative_to(lake_dir).parts]
    store.side_by_side(put_file, set(files) - set(logs))
    try:
        # If another process uploads a different lake there, one of the two gets TakenError for an equal version.
        for name in (*_OTHERS, _COMMITS):
            entries = [file for file in logs if file.relative_to(lake_dir).parts[0] == name]
            store.side_by_side(lambda file: store.put_new(str(file.relative_to(lake_dir)), file), sorted(entries))
        store.put_new(LAKE_FILE, (lake_dir / LAKE_FILE).read_bytes())
    except TakenError as error:
        raise SetupError(f"{error} belongs to another lake. Name an empty prefix.") from error


def _files(table: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(table):
        for name in names:
            if name.endswith((".parquet", ".json")) or name == LAST_CHECKPOINT.rpartition("/")[2]:
                yield Path(folder, name)

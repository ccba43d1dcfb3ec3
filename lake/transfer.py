# SPDX-License-Identifier: Apache-2.0
"""A whole lake, with all the past that is kept, from an object store into a folder and the other way.

In the folder it is a lake as any: whatever reads one, proves one or backs one up does so there.
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
    """Fetch a lake, which may be written meanwhile.

    Args:
        store: Where it is.
        lake_dir: Missing, or empty.

    Raises:
        SetupError: There is no lake, or one of another format; the folder is not empty.
        StoreError, OSError: It cannot be read or written.
    """
    if lake_dir.exists() and any(lake_dir.iterdir()):
        raise SetupError(f"{lake_dir} is not empty. Name a data directory that has no tables yet.")
    marker = store.find(LAKE_FILE)
    if marker is None:
        raise SetupError(f"there is no lake at {store.url}: it has no {LAKE_FILE}.")
    lake_dir.mkdir(parents=True, exist_ok=True)
    (lake_dir / LAKE_FILE).write_bytes(marker.data)
    check_format(lake_dir)
    _get_table(store, lake_dir, _COMMITS)  # first: the others then have every version that it names
    for name in _OTHERS:
        _get_table(store, lake_dir, name)


def _get_table(store: Store, lake_dir: Path, name: str) -> None:
    pointer = store.find(f"{name}/{LAST_CHECKPOINT}")  # before the list, so that what it points to is in that
    paths = [found.path for found in store.listed(name)]

    def fetch(path: str) -> None:
        with suppress(FileNotFoundError):  # retention takes files away, but none of a version that is kept
            store.fetch(path, lake_dir / path)

    store.side_by_side(fetch, [path for path in paths if path != f"{name}/{LAST_CHECKPOINT}"])
    if pointer is not None:
        (lake_dir / name / LAST_CHECKPOINT).write_bytes(pointer.data)


def put(lake_dir: Path, store: Store) -> None:
    """Put a lake that nobody writes where there is none.

    Cut off, it goes on when it is called again.

    Raises:
        SetupError: There is no lake in the folder; or there is another one at the URL, or a fold there.
        StoreError, OSError: It cannot be read or written.
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
        # Whoever else puts a lake there finds an entry of the same version taken.
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

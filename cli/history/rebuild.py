# SPDX-License-Identifier: Apache-2.0
"""`routelake history rebuild`: writes the interval tables again; docs/reference/tables.md, "Intervals"."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from cli.data_options import DataDir, DataMode, LakeUrl, check_there, lake_place
from runtime.disk import at_start
from runtime.machine import acting_as_owner, mask_files
from schemas.errors import SetupError, UnavailableError, one_line


def rebuild(data_dir: DataDir = Path("data"), data_mode: DataMode = "700", lake: LakeUrl = "") -> None:
    """Make the tables of intervals anew from all changes. Stop the fold first; gateways may go on."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    from lake.delta.log import DamagedTableError
    from lake.history.intervals import rebuild as run
    from lake.store import StoreError, StoreRefusedError

    place = lake_place(data_dir, lake)
    where = place.url or (place.folder if lake else data_dir)
    mask_files(data_mode)
    try:
        with _of_store(place.url) if place.url else _of_folder(place.folder) as lake_dir:
            epoch = run(lake_dir, _say)
    except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException) as error:
        passes = isinstance(error, StoreError) and not isinstance(error, StoreRefusedError)
        kind = UnavailableError if passes else at_start(error)
        raise kind(
            f"the intervals of {where} cannot be made: {one_line(error)}. Run it again once that is over."
        ) from error
    print(f"{where}: intervals made anew from the changes of epochs 1 to {epoch}")


@contextmanager
def _of_folder(lake_dir: Path) -> Iterator[Path]:
    from lake.delta.ddl import check_format, lock_lake

    check_there(lake_dir, lake_dir)
    check_format(lake_dir)
    with acting_as_owner(lake_dir), closing(lock_lake(lake_dir)):
        yield lake_dir


@contextmanager
def _of_store(url: str) -> Iterator[Path]:
    """A copy that is taken as by a fold, and published in the end."""
    from lake.delta.ddl import LAKE_FILE
    from lake.leased import LeasedLake
    from lake.store import open_store

    if open_store(url).find(LAKE_FILE) is None:
        raise SetupError(f"there is no lake at {url}: it has no {LAKE_FILE}.")
    with tempfile.TemporaryDirectory(prefix="routelake-lake-") as scratch:
        copy_dir = Path(scratch) / "lake"
        copy_dir.mkdir()
        held = LeasedLake.at(url, copy_dir)
        try:
            held.take(_wait, standby=False)
            yield copy_dir
            held.mirror.publish_all()
        finally:
            held.close()


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _say(epoch: int, last: int) -> None:
    print(f"routelake: epoch {epoch:,} of {last:,}", file=sys.stderr, flush=True)


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command()(rebuild)

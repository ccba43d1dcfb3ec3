# SPDX-License-Identifier: Apache-2.0
"""``routelake history rebuild``: the tables of intervals anew, from the changes; docs/tables.md, "Intervals"."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import typer

from cli.options import DataDir, DataMode
from runtime.machine import mask_files
from schemas.errors import SetupError, one_line


def rebuild(data_dir: DataDir = Path("data"), data_mode: DataMode = "700") -> None:
    """Make the tables of intervals anew from all changes. Stop the fold first; gateways may go on."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    from lake.damage import DamagedTableError
    from lake.ddl import check_format, lock_lake
    from pipelines.intervals.keeper import rebuild as run

    lake_dir = (data_dir / "lake").resolve()
    if not lake_dir.is_dir():
        raise SetupError(f"there is no lake in {data_dir}. Name the data directory of a routelake by --data-dir.")
    mask_files(data_mode)
    check_format(lake_dir)
    with closing(lock_lake(lake_dir)):
        try:
            epoch = run(lake_dir, _say)
        except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException) as error:
            raise SetupError(f"the intervals of {lake_dir} cannot be made: {one_line(error)}.") from error
    print(f"{data_dir}: intervals made anew from the changes of epochs 1 to {epoch}")


def _say(epoch: int, last: int) -> None:
    print(f"routelake: epoch {epoch:,} of {last:,}", file=sys.stderr, flush=True)


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command()(rebuild)

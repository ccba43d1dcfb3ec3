# SPDX-License-Identifier: Apache-2.0
"""A lake as an older routelake left it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from dev.support import lakes
from lake.delta.types import arrow_schema
from schemas.tables import ROUTE_COMMIT_TABLE

NEW: Final = ("resumeTime", "rulesVersion", "preserveTime", "chain")
"""Columns that came to routeCommitTable after its first release."""


def forget_new_columns(lake_dir: Path) -> None:
    """Write routeCommitTable anew, one commit an epoch, as it was before it had `NEW`."""
    rows = [{name: row[name] for name in row if name not in NEW} for row in lakes.commits(lake_dir)]
    path = lake_dir / ROUTE_COMMIT_TABLE.name
    shutil.rmtree(path)
    schema = arrow_schema(ROUTE_COMMIT_TABLE, without=NEW)
    DeltaTable.create(str(path), schema)
    for row in rows:
        write_deltalake(str(path), pa.Table.from_pylist([row], schema=schema), mode="append")

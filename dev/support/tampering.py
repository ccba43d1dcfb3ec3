# SPDX-License-Identifier: Apache-2.0
"""One value of a lake changed by a hand that knows Parquet and Delta: nothing else tells of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lake.delta.log import active
from lake.delta.types import ARROW_TYPES
from schemas.tables import Table


def flip(lake_dir: Path, table: Table, column: str) -> str:
    """Change the value of a column in the first row of a table that has any. Returns what it was."""
    type_ = ARROW_TYPES[next(found.type for found in table.columns if found.name == column)]
    for file in active(str(lake_dir / table.name)).files:
        if column in table.partition_by:
            return _flip_partition(lake_dir / table.name, file.path, column)
        path = lake_dir / table.name / unquote(file.path)
        rows = pq.ParquetFile(path).read()
        if not rows.num_rows:
            continue
        values = rows[column].to_pylist()
        place = next((at for at, value in enumerate(values) if value is not None), 0)
        was = values[place]
        values[place] = _other(was, type_)
        changed = rows.set_column(rows.schema.get_field_index(column), column, pa.array(values, rows[column].type))
        temporary = path.with_suffix(".changed")
        pq.write_table(changed, temporary)
        temporary.replace(path)
        return str(was)
    raise AssertionError(f"{table.name} is empty")


def _flip_partition(table: Path, file: str, column: str) -> str:
    for entry in (table / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if line.get("add", {}).get("path") == file:
                was = line["add"]["partitionValues"][column]
                line["add"]["partitionValues"][column] = _other(was, pa.string())
                entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
                return str(was)
    raise AssertionError(f"{file} is in no entry of the log")


def _other(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_boolean(type_):
        return not value
    if pa.types.is_integer(type_):
        return (value or 0) + 1
    if pa.types.is_timestamp(type_):
        return (value or datetime(2023, 1, 1, tzinfo=UTC)) + timedelta(milliseconds=1)
    if pa.types.is_map(type_):
        (key, other), *rest = value
        return [(key, _other(other, type_.item_type)), *rest]
    if pa.types.is_list(type_):
        return [*value, "x"]
    if pa.types.is_binary(type_):
        return value + b"x"
    if value is not None and value.startswith("{"):
        return value.replace('"', '"x', 1) if '"' in value else '{"x":["y",1]}'  # it stays JSON
    return f"{value or ''}x"

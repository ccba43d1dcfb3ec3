# SPDX-License-Identifier: Apache-2.0
"""Arrow types of the columns of `schemas.tables`. Spark's workers use this module, so it does not import deltalake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from schemas.tables import Table

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<bigint,string>": pa.map_(pa.int64(), pa.string()),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
    "array<string>": pa.list_(pa.string()),
}


def arrow_schema(table: Table, *, without: Sequence[str] = ()) -> pa.Schema:
    """Arrow schema of a table as declared in schemas.tables."""
    return pa.schema(
        [
            pa.field(column.name, ARROW_TYPES[column.type], column.nullable)
            for column in table.columns
            if column.name not in without
        ]
    )


def arrow_value(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 (JSON)
    """A value of routeChangeTable's JSON as Arrow takes it: the keys of JSON objects are strings."""
    if value is None or not pa.types.is_map(type_):
        return value
    return [(int(key) if pa.types.is_integer(type_.key_type) else key, item) for key, item in value.items()]

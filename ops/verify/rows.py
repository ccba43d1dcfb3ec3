# SPDX-License-Identifier: Apache-2.0
"""Rows of state tables as routeChangeTable writes them: a key and values, each as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as pds

from lake.delta.reader import plain_text
from lake.write.arrow import values_json
from schemas.tables import TOPIC_QUEUE_TABLE, Table

_ROWS_AT_A_TIME: Final = 10_000

_json = msgspec.json.Encoder()


class TextRow(NamedTuple):
    """``key`` and ``values`` are JSON."""

    key: str
    values: str


def batches(table: pds.Dataset) -> Iterator[pa.Table]:
    """Its rows, some at a time."""
    for batch in table.to_batches(batch_size=_ROWS_AT_A_TIME, batch_readahead=2, fragment_readahead=1):
        if batch.num_rows:
            yield plain_text(pa.Table.from_batches([batch]))


def text_rows(table: Table, rows: pa.Table) -> Iterator[TextRow]:
    """The same as JSON."""
    keys = zip(*(rows[name].to_pylist() for name in table.key), strict=True)
    names = table.key
    key_texts = (_json.encode(dict(zip(names, key, strict=True))).decode() for key in keys)
    for key_text, values in zip(key_texts, _values(table, rows), strict=True):
        yield TextRow(key_text, values)


def _values(table: Table, rows: pa.Table) -> Iterator[str]:
    if not table.value_columns:
        yield from [values_json(table, ())] * rows.num_rows
        return
    columns = [rows[name].to_pylist() for name in table.value_columns]
    if table is not TOPIC_QUEUE_TABLE:
        yield from (values_json(table, values) for values in zip(*columns, strict=True))
        return
    texts: dict[tuple[Any, ...], str] = {}
    for values in zip(*columns, strict=True):
        text = texts.get(values)
        if text is None:
            text = texts[values] = values_json(table, values)
        yield text


def named_differences(found: str | None, expected: str | None) -> Iterator[tuple[str, Any, Any]]:
    """(column, value found, value expected) of two JSON objects."""
    left: Mapping[str, Any] = msgspec.json.decode(found or "{}")
    right: Mapping[str, Any] = msgspec.json.decode(expected or "{}")
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield name, left.get(name), right.get(name)


def spelled(key: str) -> str:
    """A key in a sentence: ``brokerName=a topic=b``."""
    try:
        found = msgspec.json.decode(key)
    except msgspec.DecodeError:
        return key
    return " ".join(f"{name}={value}" for name, value in found.items()) if isinstance(found, dict) else key


def spelled_values(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """The same of a key's columns."""
    return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))

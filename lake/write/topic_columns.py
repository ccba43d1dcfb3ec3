# SPDX-License-Identifier: Apache-2.0
"""Columns of topic changes, and the rows of routeChangeTable that come of them (`lake.write.topic_rows`).

What is the same for many rows is made as a dictionary: Parquet has it so as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.write.arrow import CHANGE_SCHEMA, Cause, values_json
from schemas.broker import QueueRow
from schemas.outcomes import APPLIED
from schemas.tables import TOPIC_QUEUE_TABLE

NO_ROW: Final = 0
"""Place of "there is no row" among the distinct rows."""

COLUMNS: Final = pa.schema([("topic", pa.string()), ("before", pa.int32()), ("after", pa.int32())])
_STRING: Final = pa.string()
_CODED: Final = pa.dictionary(pa.int32(), _STRING)
_EACH_ITS_OWN: Final = ("topic", "key")
HISTORY_SCHEMA: Final = pa.schema(
    [
        field.with_type(_CODED) if field.type == _STRING and field.name not in _EACH_ITS_OWN else field
        for field in CHANGE_SCHEMA
    ]
)
"""Of `history_rows`: that of routeChangeTable without ``epoch``."""

_json = msgspec.json.Encoder()


class Entry(msgspec.Struct, array_like=True):
    """Consecutive rows of a part: one group's changes by one cause."""

    broker_name: str
    count: int
    cause: Cause


def entry_columns(entries: Sequence[Entry], columns: pa.Table) -> pa.Table:
    """The rows with columns ``entry``, which one a row belongs to, and ``seq``, its place in that."""
    counts = [entry.count for entry in entries]
    ends = list(accumulate(counts))
    places = pa.array(range(len(counts)), pa.int32())
    entry = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), places))
    starts = pa.array([end - count for end, count in zip(ends, counts, strict=True)], pa.int32())
    seq = pc.subtract(pa.arange(0, len(entry)).cast(pa.int32()), starts.take(entry))
    return columns.combine_chunks().append_column("entry", entry).append_column("seq", seq)


def each(columns: pa.Table, type_: pa.DataType, values: Sequence[object]) -> pa.ChunkedArray:
    """A column of what is the same for all rows of an entry."""
    return pa.array(values, type_).take(columns["entry"])


def history_rows(
    entries: Sequence[Entry], columns: pa.Table, rows: Sequence[QueueRow | None], *, plain: bool
) -> pa.Table:
    """Rows of routeChangeTable, in `HISTORY_SCHEMA`.

    Args:
        entries: of a part.
        columns: of all its rows, in `COLUMNS`.
        rows: the distinct rows that they point to.
        plain: JSON writes every topic as it is.
    """
    causes = [entry.cause for entry in entries]
    columns = entry_columns(entries, columns)
    entry = columns["entry"].chunk(0)
    zeros = pa.repeat(pa.scalar(0, pa.int32()), len(columns))
    texts = [row and values_json(TOPIC_QUEUE_TABLE, row) for row in rows]
    made = {
        "offset": each(columns, pa.int64(), [cause.offset for cause in causes]),
        "seq": columns["seq"],
        "eventTime": each(
            columns, CHANGE_SCHEMA.field("eventTime").type, [cause.event_time_ms * 1000 for cause in causes]
        ),
        "command": _coded(entry, [cause.command for cause in causes]),
        "outcome": _coded(zeros, [APPLIED]),
        "reason": _coded(zeros, [None]),
        "actor": _coded(entry, [cause.actor for cause in causes]),
        "tableName": _coded(zeros, [TOPIC_QUEUE_TABLE.name]),
        "brokerName": _coded(entry, [entry.broker_name for entry in entries]),
        "topic": columns["topic"],
        "key": _keys(entries, columns, plain=plain),
        "before": _coded(columns["before"].chunk(0), texts),
        "after": _coded(columns["after"].chunk(0), texts),
    }
    return pa.Table.from_arrays([made[name] for name in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA)


def _coded(places: pa.Int32Array, values: Sequence[str | None]) -> pa.DictionaryArray:
    """The values at those places. Each stands in the dictionary once, and null not at all, as Parquet wants it."""
    distinct = {value: at for at, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    if len(distinct) < len(values):
        codes = [None if value is None else distinct[value] for value in values]
        places = pa.array(codes, pa.int32()).take(places)
    return pa.DictionaryArray.from_arrays(places, pa.array(distinct, _STRING))


def _keys(entries: Sequence[Entry], columns: pa.Table, *, plain: bool) -> pa.ChunkedArray:
    """Column ``key``: the same JSON as of any other table's key."""
    quote, topics = '"', columns["topic"]
    if not plain:
        quote, topics = "", pa.array([_json.encode(topic).decode() for topic in topics.to_pylist()], _STRING)
    names = [_json.encode(entry.broker_name).decode() for entry in entries]
    before = each(columns, _STRING, [f'{{"brokerName":{name},"topic":{quote}' for name in names])
    return pc.binary_join_element_wise(before, topics, quote + "}", "")

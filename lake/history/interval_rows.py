# SPDX-License-Identifier: Apache-2.0
"""Conversion of changes to intervals, column by column, without a Python object per row of topicQueueTable.

A change with a new state starts an interval, and the next change of the same key ends it. So if changes are sorted by
key and time, a row gives the start of an interval and the following row its end. The first change of a key ends an
interval that is already in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.delta.types import ARROW_TYPES, arrow_schema, arrow_value
from schemas.intervals import IS_OPEN, Intervals

COLUMNS: Final = (
    *("epoch", "offset", "seq", "eventTime", "command", "actor"),
    *("tableName", "brokerName", "topic", "key", "before", "after"),
)
"""Columns of routeChangeTable that are read."""

KIND: Final = "_kind"
CLOSES: Final = "c"
NEW: Final = "n"

CODES: Final = ("command", "actor", "tableName", "brokerName", "before", "after")
"""Columns with few distinct values, which are read as dictionaries. An epoch may have a million rows."""

_ROWS_AT_A_TIME: Final = 50_000
_TIME: Final = ("epoch", "eventTime", "offset", "seq")
_BEGIN: Final = {
    "validFrom": "eventTime",
    "fromEpoch": "epoch",
    "fromOffset": "offset",
    "begunBy": "command",
    "begunByActor": "actor",
}
_END: Final = {
    "validTo": "eventTime",
    "toEpoch": "epoch",
    "toOffset": "offset",
    "endedBy": "command",
    "endedByActor": "actor",
}
END_COLUMNS: Final = (*_END, IS_OPEN)

_json = msgspec.json.Encoder()


class Step(NamedTuple):
    """Effect of some changes on an interval table.

    Attributes:
        closes: keys and ends of present intervals that end. Other columns are null.
        new: intervals to add, open or already ended.
    """

    closes: pa.Table
    new: pa.Table


def merge_schema(intervals: Intervals) -> pa.Schema:
    """Schema of the table with all columns nullable."""
    return pa.schema([field.with_nullable(True) for field in arrow_schema(intervals.table)])


def step(intervals: Intervals, changes: pa.Table) -> Step:
    """Compute the effect of changes on an interval table.

    Args:
        intervals: the interval table.
        changes: rows of routeChangeTable of whole epochs: `COLUMNS`, with `CODES` as dictionaries. Rows about other
            tables are ignored.
    """
    wanted = [name for name in COLUMNS if name != "tableName" and not (name == "key" and _is_by_topic(intervals))]
    rows = changes.select(wanted).filter(pc.equal(changes["tableName"], intervals.source.name))
    rows = rows.unify_dictionaries().combine_chunks()
    before, after = (_projected(intervals, rows[name]) for name in ("before", "after"))
    rows = rows.drop_columns(["before", "after"])
    if intervals.state != intervals.source.value_columns:
        same = pc.equal(before.cast(pa.string()), after.cast(pa.string()))
        differs = pc.invert(pc.fill_null(same, False))
        rows, before, after = rows.filter(differs), before.filter(differs), after.filter(differs)
    if not rows.num_rows:
        empty = merge_schema(intervals).empty_table()
        return Step(empty, empty)
    groups = _groups(intervals, rows)
    sorted_by = {**groups, **{name: rows[name] for name in _TIME}}
    order = pc.sort_indices(pa.table(sorted_by), [(name, "ascending") for name in sorted_by])
    rows, before, after = rows.take(order), before.take(order), after.take(order)
    continues: pa.Array = pa.repeat(pa.scalar(True), rows.num_rows - 1)  # true if a row has the key of the previous row
    for values in groups.values():
        sorted_values = _array(values).take(order)
        continues = pc.and_(continues, pc.equal(sorted_values[1:], sorted_values[:-1]))
    ends_here = pc.invert(continues)
    first = pa.concat_arrays([pa.array([True]), ends_here])
    last = pa.concat_arrays([ends_here, pa.array([True])])
    below = pc.if_else(last, pa.scalar(None, pa.int64()), pa.arange(1, rows.num_rows + 1))
    key_columns = _keys(intervals, rows)
    new = {
        **key_columns,
        **_states(intervals, after),
        **{name: _array(rows[source]) for name, source in _BEGIN.items()},
        **{name: _array(rows[source]).take(below) for name, source in _END.items()},
        IS_OPEN: last,
    }
    closing = pc.and_(first, pc.is_valid(before))
    closes = {**key_columns, **{name: _array(rows[source]) for name, source in _END.items()}}
    closed = pa.table(closes).filter(closing)
    schema = merge_schema(intervals)
    missing = {field.name: pa.nulls(closed.num_rows, field.type) for field in schema}
    missing[IS_OPEN] = pa.repeat(pa.scalar(False), closed.num_rows)
    whole = {**missing, **dict(zip(closed.column_names, closed.columns, strict=True))}
    begun = pa.table([new[name] for name in schema.names], names=schema.names)
    return Step(
        pa.table([whole[name] for name in schema.names], names=schema.names),
        begun.filter(pc.is_valid(after)) if after.null_count else begun,
    )


def plain(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows without dictionaries, in batches, as they need ten times the memory."""
    for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
        yield from rows.slice(start, _ROWS_AT_A_TIME).cast(schema).combine_chunks().to_batches()


def _is_by_topic(intervals: Intervals) -> bool:
    """Return True if the changes have separate columns for the key, so that its JSON is not needed."""
    return set(intervals.source.key) == {"brokerName", "topic"}


def _groups(intervals: Intervals, rows: pa.Table) -> dict[str, pa.Array]:
    """Columns that are equal exactly for rows of the same key."""
    if _is_by_topic(intervals):
        return {"brokerName": _array(rows["brokerName"]).indices, "topic": _array(rows["topic"])}
    return {"key": _array(rows["key"])}


def _keys(intervals: Intervals, rows: pa.Table) -> dict[str, pa.Array]:
    names = intervals.source.key
    if set(names) <= {"brokerName", "topic"}:
        return {name: _array(rows[name]) for name in names}
    decoded = [msgspec.json.decode(key) for key in rows["key"].to_pylist()]
    return {name: pa.array([key[name] for key in decoded], pa.string()) for name in names}


def _projected(intervals: Intervals, column: pa.ChunkedArray) -> pa.DictionaryArray:
    """States as JSON, without columns that do not count as a change."""
    codes = _array(column)
    if intervals.state == intervals.source.value_columns:
        return codes

    def projected(text: str) -> str:
        values = msgspec.json.decode(text)
        return _json.encode({name: values.get(name) for name in intervals.state}).decode()

    texts = pa.array(list(map(projected, codes.dictionary.to_pylist())), pa.string())
    return pa.DictionaryArray.from_arrays(codes.indices, texts)


def _states(intervals: Intervals, after: pa.DictionaryArray) -> dict[str, pa.Array]:
    """Typed columns of the states. Each distinct state is decoded once."""
    decoded = [msgspec.json.decode(text) for text in after.dictionary.to_pylist()]
    found: dict[str, pa.Array] = {}
    for column in intervals.source.columns:
        if column.name in intervals.state:
            type_ = ARROW_TYPES[column.type]
            values = [arrow_value(state.get(column.name), type_) for state in decoded]
            found[column.name] = pa.array(values, type_).take(after.indices)
    return found


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found

# SPDX-License-Identifier: Apache-2.0
"""Loading of route views: the rows of the state tables at a commit of routeCommitTable, or between two commits.

A whole view is loaded as changes of the empty view, so that one code turns columns into rows. The commit names the
version of each table. Arrow reads whole tables directly from Parquet, and differences from the change data feed. Both
release the interpreter lock.

Only topicQueueTable can be large (3,000,000 rows). Arrow sorts its rows by topic without the interpreter lock. Python
then handles each topic once, and equal topics share their tuples. The other tables have a few hundred rows, which are
read row by row.

Every function from columns to rows takes a table with the columns of the Delta table, and optionally `GONE`, which
marks removed rows. If several rows have one key, the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.delta.reader import GONE, CommitReader, read_ahead, table_at
from nameserver.state_machine.state import HeardChannel, LiveInfo, LiveKey, RegisteredMapping
from nameserver.view.model import BrokerRow, Changes, Row, TopicDelta
from nameserver.view.snapshot import RouteView, no_pause
from schemas.broker import DataVersion, TopicQueueMappingInfo
from schemas.route_commit import RouteCommit
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

_SLICE_ROWS: Final = 500

_mapping_decoder = msgspec.json.Decoder(TopicQueueMappingInfo, strict=False)
_channels_decoder = msgspec.json.Decoder(dict[str, HeardChannel])


def topic_deltas(table: pa.Table) -> Iterator[TopicDelta]:
    """Rows of topicQueueTable, grouped by topic.

    Args:
        table: brokerName and topic as strings or dictionaries, the four integers, and `GONE` if rows were removed.
    """
    if table.num_rows == 0:
        return
    topics, topic_names = _dictionary(table, "topic")
    brokers, broker_names = _ranked(*_dictionary(table, "brokerName"))
    rows, row_values = _row_codes(table)
    if GONE in table.column_names:
        rows = pc.if_else(table[GONE].combine_chunks(), pa.scalar(len(row_values), pa.int32()), rows)
    # A stable sort, so that the last row of a key stays last.
    key = pc.add(pc.multiply(topics.cast(pa.int64()), len(broker_names)), brokers.cast(pa.int64()))
    order = pc.sort_indices(key)
    key = key.take(order)
    if len(key) > 1:
        last_of_key = pa.concat_arrays([pc.not_equal(key[:-1], key[1:]), pa.array([True])])
        if not pc.all(last_of_key).as_py():
            order = order.filter(last_of_key)
    topics, brokers, rows = topics.take(order), brokers.take(order), rows.take(order)
    ends = pc.run_end_encode(topics)
    yield from _grouped(
        [topic_names[code] for code in ends.values.to_pylist()],
        ends.run_ends.to_pylist(),
        (_ints(brokers), broker_names),
        (_ints(rows), [*row_values, None]),
    )


def _grouped(
    topics: list[str],
    ends: list[int],
    brokers: tuple[memoryview, list[str]],
    rows: tuple[memoryview, list[Row | None]],
) -> Iterator[TopicDelta]:
    """One delta per topic. Equal sequences of codes share one tuple."""
    broker_codes, broker_names = brokers
    row_codes, row_values = rows
    broker_tuples: dict[bytes, tuple[str, ...]] = {}
    row_tuples: dict[bytes, tuple[Row | None, ...]] = {}
    start = 0
    for topic, end in zip(topics, ends, strict=True):
        part = broker_codes[start:end]
        key = part.tobytes()
        names = broker_tuples.get(key)
        if names is None:
            names = broker_tuples[key] = tuple(map(broker_names.__getitem__, part))
        part = row_codes[start:end]
        key = part.tobytes()
        values = row_tuples.get(key)
        if values is None:
            values = row_tuples[key] = tuple(map(row_values.__getitem__, part))
        yield topic, names, values
        start = end


def _dictionary(table: pa.Table, name: str) -> tuple[pa.Array, list[str]]:
    """A text column as int32 codes, and the text of each code."""
    column = table[name]
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk, or too many values for one
        array = pa.concat_arrays(array.chunks)
    return array.indices.cast(pa.int32()), array.dictionary.to_pylist()


def _ranked(codes: pa.Array, names: list[str]) -> tuple[pa.Array, list[str]]:
    """Codes renumbered in the order of the names."""
    ordered = sorted(names)
    rank = {name: index for index, name in enumerate(ordered)}
    return pa.array([rank[name] for name in names], pa.int32()).take(codes), ordered


def _row_codes(table: pa.Table) -> tuple[pa.Array, list[Row]]:
    """The four integers of each row as one int32 code, and the row of each code."""
    codes: pa.Array = pa.repeat(pa.scalar(0, pa.int32()), table.num_rows)
    rows: list[tuple[int, ...]] = [()]
    for name in TOPIC_QUEUE_TABLE.value_columns:
        column = pc.fill_null(table[name], 0).combine_chunks()
        bounds = pc.min_max(column)
        if bounds["min"] == bounds["max"]:
            rows = [(*row, bounds["min"].as_py()) for row in rows]
            continue
        numbers = column.dictionary_encode()
        values, count = numbers.dictionary.to_pylist(), len(numbers.dictionary)
        pairs = pc.add(pc.multiply(codes.cast(pa.int64()), count), numbers.indices.cast(pa.int64())).dictionary_encode()
        rows = [(*rows[pair // count], values[pair % count]) for pair in pairs.dictionary.to_pylist()]
        codes = pairs.indices
    return codes, [(read, write, perm, flag) for read, write, perm, flag in rows]


def _ints(array: pa.Array) -> memoryview:
    """An int32 array without nulls as a memoryview of ints."""
    buffer = array.buffers()[1]
    return memoryview(buffer).cast("b").cast("i")[array.offset : array.offset + len(array)]


def broker_rows(table: pa.Table) -> Iterator[tuple[str, BrokerRow | None]]:
    """Rows of brokerAddrTable by broker name, or None for a removed row."""
    for gone, (name, cluster, addrs, zone, acting) in _records(table, BROKER_ADDR_TABLE):
        yield name, None if gone else BrokerRow(cluster or "", dict(sorted(addrs or ())), zone, bool(acting))


def cluster_members(table: pa.Table) -> Iterator[tuple[tuple[str, str], bool]]:
    """Rows of clusterAddrTable: (cluster, broker name), and True if present or False if removed."""
    for gone, (cluster, broker_name) in _records(table, CLUSTER_ADDR_TABLE):
        yield (cluster, broker_name), not gone


def live_rows(table: pa.Table) -> Iterator[tuple[LiveKey, LiveInfo | None]]:
    """Rows of brokerLiveTable by key, or None for a removed row."""
    for gone, (name, cluster, addr, *values) in _records(table, BROKER_LIVE_TABLE):
        if gone:
            yield (name, cluster, addr), None
            continue
        updated, offset, timeout, expires, state_version, timestamp, counter, ha_addr, digest, channels = values
        version = DataVersion(state_version or 0, timestamp or 0, counter or 0)
        heard = _channels_decoder.decode(channels) if channels else {}
        yield (
            (name, cluster, addr),
            LiveInfo(updated or 0, offset or 0, timeout or 0, expires or 0, version, ha_addr, digest, heard),
        )


def filter_servers(table: pa.Table) -> Iterator[tuple[LiveKey, tuple[str, ...] | None]]:
    """Rows of filterServerTable by key, or None for a removed row."""
    for gone, (name, cluster, addr, servers) in _records(table, FILTER_SERVER_TABLE):
        yield (name, cluster, addr), None if gone else tuple(servers or ())


def mapping_rows(table: pa.Table) -> Iterator[tuple[tuple[str, str, str], RegisteredMapping | None]]:
    """Rows of topicQueueMappingInfoTable by key, or None for a removed row."""
    for gone, (broker_name, topic, bname, mapping, offset) in _records(table, TOPIC_QUEUE_MAPPING_INFO_TABLE):
        yield (
            (broker_name, topic, bname),
            None if gone or mapping is None else RegisteredMapping(_mapping_decoder.decode(mapping), offset or 0),
        )


def kv_rows(table: pa.Table) -> Iterator[tuple[tuple[str, str], tuple[str | None] | None]]:
    """Rows of kvConfigTable by (namespace, key), or None for a removed row."""
    for gone, (namespace, key, value) in _records(table, KV_CONFIG_TABLE):
        yield (namespace, key), None if gone else (value,)


def _records(table: pa.Table, spec: Table) -> Iterator[tuple[bool, tuple[Any, ...]]]:
    """(removed, cells) of each row. Rows go in slices, as Arrow holds the interpreter lock to make Python objects."""
    for start in range(0, table.num_rows, _SLICE_ROWS):
        part = table.slice(start, _SLICE_ROWS)
        gone = part[GONE].to_pylist() if GONE in part.column_names else repeat(False, part.num_rows)
        yield from zip(gone, zip(*(part[name].to_pylist() for name in spec.column_names), strict=True), strict=True)


_CODES: Final = {TOPIC_QUEUE_TABLE.name: ("brokerName", "topic")}
"""Text columns that are read as codes, by table name."""

_READERS: Final = 3

_K = TypeVar("_K")
_V = TypeVar("_V")


def _codes(spec: Table) -> tuple[str, ...]:
    return _CODES.get(spec.name, ())


# --- whole tables ---


def load_changes(lake_dir: str, commit: RouteCommit) -> Changes:
    """Every row of every state table at a commit, as changes of the empty view. Tables are read in parallel."""

    def read(spec: Table) -> pa.Table:
        return table_at(lake_dir, spec, commit.versions[spec.name], _codes(spec)).to_table()

    with ThreadPoolExecutor(_READERS, "view-load") as readers:
        rows = dict(zip(STATE_TABLES, readers.map(read, STATE_TABLES), strict=True))
    return changes_from(commit, rows.pop)


def load_view(lake_dir: str, commit: RouteCommit, pause: Callable[[], None] = no_pause) -> RouteView:
    """The view at a commit."""
    return RouteView.empty().apply(load_changes(lake_dir, commit), pause)


# --- differences ---


def state_logs(lake_dir: str) -> dict[str, CommitReader]:
    """The logs of the state tables, by table name, for `changes_between`."""
    return {spec.name: CommitReader(lake_dir, spec, _codes(spec)) for spec in STATE_TABLES}


def changes_between(
    logs: Mapping[str, CommitReader], before: RouteCommit, after: RouteCommit, pause: Callable[[], None] = no_pause
) -> Changes:
    """Changes of the state tables from one commit to a later one, read from the change data feed.

    Args:
        logs: Result of `state_logs`.
        before: The commit to start from.
        after: The commit to arrive at.
        pause: Called from time to time.

    Raises:
        OSError, ValueError, pyarrow.ArrowException: The change data feed was deleted or cannot be read.
    """

    def read(spec: Table) -> pa.Table | None:
        first, end = _moved(spec, before, after)
        return logs[spec.name].changes(first, end - 1, pause)

    read_ahead([(logs[spec.name], range(*_moved(spec, before, after))) for spec in STATE_TABLES])
    return changes_from(after, read, pause)


def _moved(spec: Table, before: RouteCommit, after: RouteCommit) -> tuple[int, int]:
    """The range of versions between two commits: the first one, and the one after the last."""
    return before.versions.get(spec.name, -1) + 1, after.versions.get(spec.name, -1) + 1


def changes_from(
    commit: RouteCommit, read: Callable[[Table], pa.Table | None], pause: Callable[[], None] = no_pause
) -> Changes:
    """Changes from Arrow tables.

    Args:
        commit: Commit after the changes.
        read: Returns the changed rows of a state table, or None if it has none.
        pause: Called often.
    """
    rows = {spec.name: read(spec) for spec in STATE_TABLES}

    def small(spec: Table, convert: Callable[[pa.Table], Iterator[tuple[_K, _V]]]) -> dict[_K, _V]:
        found: dict[_K, _V] = {}
        table = rows[spec.name]
        for key, value in () if table is None else convert(table):
            found[key] = value
            pause()
        return found

    queues = rows[TOPIC_QUEUE_TABLE.name]
    return Changes(
        commit,
        () if queues is None else topic_deltas(queues),
        small(BROKER_ADDR_TABLE, broker_rows),
        small(CLUSTER_ADDR_TABLE, cluster_members),
        small(BROKER_LIVE_TABLE, live_rows),
        small(FILTER_SERVER_TABLE, filter_servers),
        small(TOPIC_QUEUE_MAPPING_INFO_TABLE, mapping_rows),
        small(KV_CONFIG_TABLE, kv_rows),
    )

# SPDX-License-Identifier: Apache-2.0
"""Reading the lake: cuts of routeCommitTable, and the rows of the state tables at a cut or between two cuts.

A whole view is loaded as changes on top of the empty view, so there is one way from columns to rows. Tables are pinned
by version; whole tables come straight from Parquet through Arrow, differences from the change data feed. Both run
without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from api.view import columns
from api.view.rows import Changes, Cut, Outcome
from api.view.snapshot import RouteView, no_pause
from lake import ddl
from lake.actions import File
from lake.active import active
from lake.deltalog import DeltaLog, file_system, is_local, table_uri
from lake.types import arrow_schema
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    ROUTE_COMMIT_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

_CUT_COLUMNS: Final = tuple(name for name in ROUTE_COMMIT_TABLE.column_names if name != "batchId")
_LARGE_TEXT: Final = ("brokerName", "topic")
"""Columns of topicQueueTable that are kept as codes."""

_ANY_EPOCH: Final = 2**62

_READERS: Final = 3


class _Stats(msgspec.Struct, rename="camel"):
    """Statistics of a file, as far as they are looked at."""

    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}


_stats_decoder = msgspec.json.Decoder(_Stats)
_outcomes_decoder = msgspec.json.Decoder(list[Outcome])

_K = TypeVar("_K")
_V = TypeVar("_V")


class Commit(msgspec.Struct, frozen=True):
    """A row of routeCommitTable: the cut, and what became of its commands."""

    cut: Cut
    outcomes: list[Outcome]


def check_format(lake_dir: str) -> None:
    """Refuse a lake of a newer format. Raises SetupError; a missing lake is fine."""
    if is_local(lake_dir):
        ddl.check_format(Path(lake_dir))


# --- routeCommitTable ---


def commits(table: pa.Table) -> list[Commit]:
    """Rows of routeCommitTable in epoch order."""
    found = [
        Commit(
            Cut(
                epoch=row["epoch"],
                log_offset=row["logOffset"],
                liveness_offset=row["livenessOffset"],
                event_time=row["eventTime"].astimezone(UTC),
                watermark=row["watermark"].astimezone(UTC),
                commit_time=row["commitTime"].astimezone(UTC),
                versions=dict(row["versions"]),
                query_id=row["queryId"],
            ),
            _outcomes_decoder.decode(row["outcomes"]) if row["outcomes"] else [],
        )
        for row in table.select(_CUT_COLUMNS).to_pylist()
    ]
    return sorted(found, key=lambda commit: commit.cut.epoch)


def read_commits(files: Sequence[File], lake_dir: str, *, first: int = 0, last: int = _ANY_EPOCH) -> list[Commit]:
    """Rows of routeCommitTable whose epoch is in [first, last], from those of its files that may hold them."""
    wanted = [file for file in files if (epochs := _epochs_in(file))[1] >= first and epochs[0] <= last]
    if not wanted:
        return []
    rows = dataset(lake_dir, ROUTE_COMMIT_TABLE, wanted).to_table(columns=list(_CUT_COLUMNS))
    keep = pc.and_(pc.greater_equal(rows["epoch"], first), pc.less_equal(rows["epoch"], last))
    return commits(rows.filter(keep))


def latest_commit(files: Sequence[File], lake_dir: str) -> Commit | None:
    """The row of the newest epoch."""
    newest = max((_epochs_in(file)[1] for file in files), default=None)
    found = [] if newest is None else read_commits(files, lake_dir, first=0 if newest == _ANY_EPOCH else newest)
    return found[-1] if found else None


def _epochs_in(file: File) -> tuple[int, int]:
    """The oldest and the newest epoch in a file of routeCommitTable; any, if that is not recorded."""
    stats = _stats_decoder.decode(file.stats) if file.stats else _Stats()
    return stats.min_values.get("epoch", 0), stats.max_values.get("epoch", _ANY_EPOCH)


# --- whole tables ---


def dataset(lake_dir: str, spec: Table, files: Sequence[File]) -> pds.Dataset:
    """Files of a table as an Arrow dataset."""
    text = [name for name in _LARGE_TEXT if spec is TOPIC_QUEUE_TABLE and name not in spec.partition_by]
    schema = arrow_schema(spec)
    for name in text:
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(pa.dictionary(pa.int32(), pa.string())))
    layout = pds.ParquetFileFormat(read_options=pds.ParquetReadOptions(dictionary_columns=text))
    storage = file_system(table_uri(lake_dir, spec))
    fragments = [
        layout.make_fragment(unquote(file.path), filesystem=storage, partition_expression=_partition(file))
        for file in files
    ]
    return pds.FileSystemDataset(fragments, schema, layout, storage)


def _partition(file: File) -> pc.Expression | None:
    """The columns that all rows of a file have in common, which are not in it."""
    terms = [pc.field(name) == pc.scalar(value) for name, value in (file.partition_values or {}).items()]
    return reduce(and_, terms) if terms else None


def load_changes(lake_dir: str, cut: Cut) -> Changes:
    """Every row of every state table at a cut, as changes to the empty view. Tables are read side by side."""

    def read(spec: Table) -> pa.Table | None:
        version = cut.versions.get(spec.name)
        if version is None:
            return None
        return dataset(lake_dir, spec, active(table_uri(lake_dir, spec), version).files).to_table()

    with ThreadPoolExecutor(_READERS, "view-load") as readers:
        rows = dict(zip(STATE_TABLES, readers.map(read, STATE_TABLES), strict=True))
    return changes_from(cut, rows.pop)


def load_view(lake_dir: str, cut: Cut, pause: Callable[[], None] = no_pause) -> RouteView:
    """The view at a cut."""
    return RouteView.empty().apply(load_changes(lake_dir, cut), pause)


# --- differences ---


def state_logs(lake_dir: str) -> dict[str, DeltaLog]:
    """The logs of the state tables, by table name, for `changes_between`."""
    return {
        spec.name: DeltaLog(lake_dir, spec, codes=_LARGE_TEXT if spec is TOPIC_QUEUE_TABLE else ())
        for spec in STATE_TABLES
    }


def changes_between(
    logs: Mapping[str, DeltaLog], before: Cut, after: Cut, pause: Callable[[], None] = no_pause
) -> Changes:
    """What changed in the state tables from one cut to a later one, out of the change data feed.

    Args:
        logs: As `state_logs` gives them.
        before: The cut to start from.
        after: The cut to arrive at.
        pause: Called now and then.

    Raises:
        OSError, ValueError, pyarrow.ArrowException: The feed is not there any more, or cannot be read.
    """

    def read(spec: Table) -> pa.Table | None:
        first, last = before.versions.get(spec.name, -1) + 1, after.versions.get(spec.name, -1)
        return logs[spec.name].changes(first, last, pause)

    return changes_from(after, read, pause)


def changes_from(cut: Cut, read: Callable[[Table], pa.Table | None], pause: Callable[[], None] = no_pause) -> Changes:
    """Changes out of Arrow tables.

    Args:
        cut: Where they lead.
        read: Gives the changed rows of each state table (see `columns`), or None.
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
        cut,
        () if queues is None else columns.topic_deltas(queues),
        small(BROKER_ADDR_TABLE, columns.broker_rows),
        small(CLUSTER_ADDR_TABLE, columns.cluster_members),
        small(BROKER_LIVE_TABLE, columns.live_rows),
        small(FILTER_SERVER_TABLE, columns.filter_servers),
        small(TOPIC_QUEUE_MAPPING_INFO_TABLE, columns.mapping_rows),
        small(KV_CONFIG_TABLE, columns.kv_rows),
    )

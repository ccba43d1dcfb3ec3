"""Reading the lake: cuts of routeCommitTable, and the rows of the state tables at a cut or between two cuts.

A whole view is loaded as changes on top of the empty view, so there is one way from columns to rows. Tables are pinned
by version; whole tables come straight from Parquet through Arrow, differences from the change data feed. Both run
without the interpreter lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pfs
from deltalake import DeltaTable

from api.view import columns
from api.view.rows import Changes, Cut, Outcome
from api.view.snapshot import RouteView, no_pause
from schemas.errors import SetupError
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    LAKE_FORMAT_VERSION,
    ROUTE_COMMIT_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

_CUT_COLUMNS: Final = tuple(name for name in ROUTE_COMMIT_TABLE.column_names if name != "batchId")
_LARGE_TEXT: Final = ("brokerName", "topic")
_SLICE_ROWS: Final = 100_000
_PREIMAGE: Final = "update_preimage"
_DELETE: Final = "delete"

_outcomes_decoder = msgspec.json.Decoder(list[Outcome])

_K = TypeVar("_K")
_V = TypeVar("_V")


class Commit(msgspec.Struct, frozen=True):
    """A row of routeCommitTable: the cut, and what became of its commands."""

    cut: Cut
    outcomes: list[Outcome]


def table_uri(lake_dir: str, table: Table) -> str:
    """Where a table lives."""
    return f"{lake_dir.rstrip('/')}/{table.name}"


def is_local(lake_dir: str) -> bool:
    """Whether the lake is a directory of this machine."""
    return "://" not in lake_dir


def check_format(lake_dir: str) -> None:
    """Refuse a lake of a newer format; a lake without lake.json is not refused.

    Raises:
        SetupError: lake.json names a format that this version does not know.
    """
    if not is_local(lake_dir):
        return
    try:
        found = json.loads(Path(lake_dir, "lake.json").read_bytes())
    except (OSError, ValueError):
        return
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > LAKE_FORMAT_VERSION:
        raise SetupError(
            f"{lake_dir} is a lake of format {version}; this routelake reads up to {LAKE_FORMAT_VERSION}. "
            "Upgrade the gateway.",
            found=version,
            supported=LAKE_FORMAT_VERSION,
        )


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


def read_commits(table: DeltaTable, lake_dir: str, *, first: int = 0, last: int | None = None) -> list[Commit]:
    """Rows of routeCommitTable whose epoch is in [first, last], from the files that may hold them."""
    files = pa.table(table.get_add_actions(flatten=True)).select(["path", "min.epoch", "max.epoch"])
    wanted = pc.greater_equal(pc.fill_null(files["max.epoch"], first), first)
    if last is not None:
        wanted = pc.and_(wanted, pc.less_equal(pc.fill_null(files["min.epoch"], last), last))
    rows = read_files(table, lake_dir, ROUTE_COMMIT_TABLE, files["path"].filter(wanted).to_pylist(), _CUT_COLUMNS)
    keep = pc.greater_equal(rows["epoch"], first)
    if last is not None:
        keep = pc.and_(keep, pc.less_equal(rows["epoch"], last))
    return commits(rows.filter(keep))


def latest_commit(table: DeltaTable, lake_dir: str) -> Commit | None:
    """The row of the newest epoch."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if actions.num_rows == 0:
        return None
    newest: int | None = pc.max(actions["max.epoch"]).as_py()
    found = read_commits(table, lake_dir, first=newest or 0)
    return found[-1] if found else None


def read_files(table: DeltaTable, lake_dir: str, spec: Table, paths: list[str], names: Iterable[str]) -> pa.Table:
    """Columns of some files of an unpartitioned table, by their paths in the Delta log."""
    if not paths:
        schema = pa.schema(table.schema().to_arrow())
        return schema.empty_table().select(list(names))
    found = pds.dataset(paths, format="parquet", filesystem=file_system(lake_dir, spec))
    return found.to_table(columns=list(names))


def file_system(lake_dir: str, spec: Table) -> pfs.FileSystem:
    """Arrow's view of a table's folder: straight to the files where they are local."""
    uri = table_uri(lake_dir, spec)
    if is_local(lake_dir):
        return pfs.SubTreeFileSystem(str(Path(uri).resolve()), pfs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pfs.PyFileSystem(DeltaStorageHandler(uri))


# --- whole tables ---


def dataset(table: DeltaTable, lake_dir: str, spec: Table) -> pds.Dataset:
    """A table version as an Arrow dataset: files are skipped by partition and statistics."""
    text = [name for name in _LARGE_TEXT if spec is TOPIC_QUEUE_TABLE and name not in spec.partition_by]
    return table.to_pyarrow_dataset(
        filesystem=file_system(lake_dir, spec),
        parquet_read_options=pds.ParquetReadOptions(dictionary_columns=text),
    )


def load_changes(lake_dir: str, cut: Cut) -> Changes:
    """Every row of every state table at a cut, as changes to the empty view."""

    def read(spec: Table) -> pa.Table | None:
        if cut.versions.get(spec.name) is None:
            return None
        table = DeltaTable(table_uri(lake_dir, spec), version=cut.versions[spec.name])
        return dataset(table, lake_dir, spec).to_table()

    return changes_from(cut, read)


def load_view(lake_dir: str, cut: Cut, pause: Callable[[], None] = no_pause) -> RouteView:
    """The view at a cut."""
    return RouteView.empty().apply(load_changes(lake_dir, cut), pause)


# --- differences ---


def changes_between(
    tables: dict[str, DeltaTable], before: Cut, after: Cut, pause: Callable[[], None] = no_pause
) -> Changes:
    """What changed in the state tables from one cut to a later one, out of the change data feed.

    Args:
        tables: Handles of the state tables by name, at the versions of ``after`` or later.
        before: The cut to start from.
        after: The cut to arrive at.
        pause: Called now and then.

    Raises:
        Exception: Whatever deltalake raises when the feed is not there any more.
    """

    def read(spec: Table) -> pa.Table | None:
        first, last = before.versions.get(spec.name, -1) + 1, after.versions.get(spec.name, -1)
        return _feed(tables[spec.name], spec, first, last) if first <= last else None

    return changes_from(after, read, pause)


def _feed(table: DeltaTable, spec: Table, first: int, last: int) -> pa.Table | None:
    """Rows of the change data feed of versions first to last, oldest first, preimages left out."""
    feed = table.load_cdf(starting_version=first, ending_version=last)
    batches = []
    # Through Arrow: iterating deltalake's own reader keeps the interpreter lock while it reads (measured: 190 ms).
    for part in _slices(pa.RecordBatchReader.from_stream(feed)):
        part = plain_text(part, codes=_LARGE_TEXT if spec is TOPIC_QUEUE_TABLE else ())
        part = part.filter(pc.not_equal(part["_change_type"], _PREIMAGE))
        if part.num_rows:
            batches.append(part.append_column(columns.GONE, pc.equal(part["_change_type"], _DELETE)))
    if not batches:
        return None
    rows = pa.concat_tables(batches)
    if first < last or pc.any(rows[columns.GONE]).as_py():
        # Within one version a removal comes before the row that takes its place.
        order = pc.sort_indices(rows, sort_keys=[("_commit_version", "ascending"), (columns.GONE, "descending")])
        rows = rows.take(order)
    return rows


def _slices(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """A stream in pieces that are neither one per file (a change of 300 partitions) nor all of 3,000,000 rows."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= _SLICE_ROWS:
            yield pa.Table.from_batches(batches)
            batches, rows = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def plain_text(part: pa.Table, codes: Iterable[str]) -> pa.Table:
    """String views, for which Arrow lacks most functions, as strings; some as dictionaries, which take less room."""
    for index, field in enumerate(part.schema):
        if field.name in codes:
            part = part.set_column(index, field.name, part[index].cast(pa.string()).dictionary_encode())
        elif field.type == pa.string_view():
            part = part.set_column(index, field.name, part[index].cast(pa.string()))
    return part


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

# SPDX-License-Identifier: Apache-2.0
"""Columns of a file have the types of the schema, with any writer, and any reader can filter on them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from dev.support import any_lake, lakes
from lake.delta.data_file import drop_arrow_types
from lake.delta.log import data_files
from lake.delta.types import arrow_schema
from schemas.tables import (
    ALL_TABLES,
    BROKER_LIVE_TABLE,
    KV_CONFIG_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

TABLES = pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)


@pytest.fixture(scope="module", params=["written", "compacted"])
def lake_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    lake = any_lake.write(directory)
    if request.param == "compacted":
        any_lake.compact(lake)
    return directory


def odd_types(lake_dir: Path) -> list[str]:
    """Columns, file by file, for which Arrow takes another type than the schema says; _change_type is of the feed."""
    return [
        f"{table.name} {file.name}: {field.name} is {field.type}"
        for table in ALL_TABLES
        for file in data_files(lake_dir / table.name)
        for field in pq.read_schema(file)
        if not field.type.equals(_types(table)[field.name])
    ]


def _types(table: Table) -> dict[str, pa.DataType]:
    return {"_change_type": pa.string(), **{field.name: field.type for field in arrow_schema(table)}}


# --- what is written ---


def test_every_file_has_the_types_of_the_schema(lake_dir: Path) -> None:
    assert odd_types(lake_dir) == []


def test_checkpoints_have_no_types_of_arrow(lake_dir: Path) -> None:
    """Readers of the log use Arrow, too; delta-rs writes them without views by itself."""
    found = list(lake_dir.glob("*Table/_delta_log/*.checkpoint.parquet"))
    assert len(found) == (len(ALL_TABLES) if lake_dir.name.startswith("compacted") else 0)
    for checkpoint in found:
        types = pq.read_schema(checkpoint).to_string(truncate_metadata=False)
        assert "_view" not in types
        assert "large_" not in types
        assert "dictionary" not in types


def test_appends_merges_deletes_and_change_feeds_were_written(lake_dir: Path) -> None:
    """Else the tests of this file say little."""
    for table in ALL_TABLES:
        assert lakes.rows(lake_dir, table.name), table.name
    kinds = {
        row["_change_type"]
        for table in (KV_CONFIG_TABLE, BROKER_LIVE_TABLE)
        for row in pa.table(DeltaTable(str(lake_dir / table.name)).load_cdf(starting_version=1).read_all()).to_pylist()
    }
    assert kinds == {"insert", "update_preimage", "update_postimage", "delete"}
    assert any("_change_data" in file.parts for file in data_files(lake_dir / TOPIC_QUEUE_TABLE.name))


def test_files_are_as_long_as_the_log_says(lake_dir: Path) -> None:
    """Spark looks for a file's footer at the length that the log names."""
    for table in ALL_TABLES:
        for entry in (lake_dir / table.name / "_delta_log").glob("*.json"):
            for action in map(json.loads, entry.read_text().splitlines()):
                for file in (action.get("add"), action.get("cdc")):
                    if file is not None:
                        assert (lake_dir / table.name / unquote(file["path"])).stat().st_size == file["size"]


# --- what is read ---


def by_pyarrow(table: DeltaTable, column: str, value: Any) -> int:
    field = pc.field(column)
    wanted = field.is_valid() if isinstance(value, list) else field == pa.scalar(value)
    return int(table.to_pyarrow_dataset().count_rows(filter=wanted))


def by_pandas(table: DeltaTable, column: str, value: Any) -> int:
    if isinstance(value, list):
        return int(table.to_pandas()[column].notna().sum())
    return len(table.to_pandas(filters=[(column, "=", value)]))


def by_polars(table: DeltaTable, column: str, value: Any) -> int:
    wanted = pl.col(column).is_not_null() if isinstance(value, list) else pl.col(column) == pl.lit(value)
    return pl.scan_delta(table).filter(wanted).collect().height


def by_polars_over_pyarrow(table: DeltaTable, column: str, value: Any) -> int:
    wanted = pl.col(column).is_not_null() if isinstance(value, list) else pl.col(column) == pl.lit(value)
    return pl.scan_pyarrow_dataset(table.to_pyarrow_dataset()).filter(wanted).collect().height


def by_duckdb(table: DeltaTable, column: str, value: Any) -> int:
    with duckdb.cursor() as connection:  # of one database, as its start takes longer than the query
        connection.register("rows", table.to_pyarrow_dataset())
        return _count(connection, "rows", column, value)


def by_duckdb_alone(table: DeltaTable, column: str, value: Any) -> int:
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        try:
            connection.execute("load delta")
        except duckdb.Error:
            pytest.skip("DuckDB's own extension for Delta is not installed here, and installing it needs the network")
        return _count(connection, f"delta_scan('{table.table_uri}')", column, value)


def _count(connection: duckdb.DuckDBPyConnection, rows: str, column: str, value: Any) -> int:
    found = (
        connection.execute(f'select count(*) from {rows} where "{column}" is not null')
        if isinstance(value, list)
        else connection.execute(f'select count(*) from {rows} where "{column}" = $value', {"value": value})
    ).fetchone()
    assert found is not None
    return int(found[0])


@cache
def rows_of(lake_dir: Path, table: Table) -> list[dict[str, Any]]:
    return lakes.rows(lake_dir, table.name)


@TABLES
@pytest.mark.parametrize(
    "reader",
    [by_pyarrow, by_pandas, by_polars, by_polars_over_pyarrow, by_duckdb, by_duckdb_alone],
    ids=lambda reader: reader.__name__,
)
def test_every_reader_filters_on_every_column(
    lake_dir: Path, reader: Callable[[DeltaTable, str, Any], int], table: Table
) -> None:
    rows = rows_of(lake_dir, table)
    opened = DeltaTable(str(lake_dir / table.name))
    for column in table.column_names:
        value = next((row[column] for row in rows if row[column] is not None), None)
        if value is not None:  # haServerAddr and channels are empty in this history
            same = sum(row[column] is not None if isinstance(value, list) else row[column] == value for row in rows)
            assert reader(opened, column, value) == same, column


# --- one file ---


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A file as MERGE leaves it, with a value that looks like the key in its footer."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"k": ["ARROW:schema"], "v": ["a"]}))
    row = pa.table({"k": ["ARROW:schema"], "v": ["ARROW:schema"]})
    merge = DeltaTable(str(path)).merge(row, "t.k = s.k", source_alias="s", target_alias="t")
    merge.when_matched_update({"v": "s.v"}).execute()
    (file,) = DeltaTable(str(path)).file_uris()
    return Path(file)


def test_statistics_and_rows_stay(merged: Path) -> None:
    rows, footer = pq.read_table(merged).to_pylist(), pq.read_metadata(merged)
    size, time_ns = merged.stat().st_size, merged.stat().st_mtime_ns
    assert pq.read_schema(merged).types == [pa.string_view()] * 2
    assert drop_arrow_types(merged)
    assert pq.read_schema(merged).types == [pa.string()] * 2
    assert pq.read_table(merged, filters=[("k", "=", "ARROW:schema")]).to_pylist() == rows
    after = pq.read_metadata(merged).row_group(0)
    for number in range(2):
        assert after.column(number).statistics.min == "ARROW:schema"
        assert after.column(number).statistics == footer.row_group(0).column(number).statistics
    assert (merged.stat().st_size, merged.stat().st_mtime_ns) == (size, time_ns)
    assert not drop_arrow_types(merged), "once is enough"


@pytest.mark.parametrize("damage", ["empty", "short", "cut", "length"])
def test_a_damaged_file_is_left_as_it_is(merged: Path, damage: str) -> None:
    whole = merged.read_bytes()
    text = {
        "empty": b"",
        "short": b"PAR1",
        "cut": whole[: len(whole) // 2],
        "length": whole[:-8] + (2**31).to_bytes(4, "little") + b"PAR1",
    }[damage]
    merged.write_bytes(text)
    assert not drop_arrow_types(merged)
    assert merged.read_bytes() == text


def test_a_link_of_the_file_says_the_same(merged: Path, tmp_path: Path) -> None:
    """The staging folder's files are the table's."""
    os.link(merged, tmp_path / "link.parquet")
    assert drop_arrow_types(tmp_path / "link.parquet")
    assert pq.read_schema(merged).types == [pa.string()] * 2

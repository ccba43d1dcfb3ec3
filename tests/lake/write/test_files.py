# SPDX-License-Identifier: Apache-2.0
"""Data files that shards write: the tables, and their change data feeds, are what delta-rs makes of the same batches."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings

from dev.support import events as make
from dev.support import lakes
from dev.support.chain import assert_chain
from dev.support.drive import DeltaLake, drive, open_writer
from dev.support.expected import Expected, tables_of
from dev.support.generated_logs import batches, cuts, logs, written
from dev.support.microbatches import ordered
from eventlog.base import LogRecord
from lake.delta.data_file import CHANGE_TYPE, INSERTED, STATISTICS_LENGTH, DataFile, DataFileWriter, Partition
from lake.delta.ddl import open_table
from lake.delta.log import entry_name
from lake.delta.reader import GONE, CommitReader
from lake.delta.types import arrow_schema
from lake.write import shard_files
from lake.write.batch import Batch
from lake.write.shard_files import TopicFiles, WrittenHistory
from nameserver.state_machine.state import RouteState
from schemas.tables import ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

TABLE, HISTORY = TOPIC_QUEUE_TABLE.name, ROUTE_CHANGE_TABLE.name
STRANGE = "o'dd %2F/=ü"


@pytest.fixture(autouse=True)
def every_row_is_worth_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_files, "ROWS_WORTH_A_FILE", 1)


def actions(lake_dir: Path, name: str, version: int) -> list[tuple[str, dict[str, Any]]]:
    text = (lake_dir / name / entry_name(version)).read_text(encoding="utf-8")
    return [(kind, said) for line in text.splitlines() for kind, said in json.loads(line).items()]


def versions(lake_dir: Path, name: str) -> range:
    return range(1, DeltaTable(str(lake_dir / name)).version() + 1)


def read(lake_dir: Path, name: str, said: dict[str, Any]) -> pa.Table:
    return pq.read_table(lake_dir / name / unquote(said["path"]), partitioning=None)


def feed(lake_dir: Path) -> list[list[str]]:
    """Of each version: the changed topics and how they changed. delta-rs's reader finds no partitions with a `%`."""
    found = []
    for version in versions(lake_dir, TABLE):
        said = actions(lake_dir, TABLE, version)
        files = [about for kind, about in said if kind == "cdc"] or [about for kind, about in said if kind == "add"]
        rows: list[str] = []
        for about in files:
            table = read(lake_dir, TABLE, about)
            if CHANGE_TYPE not in table.column_names:
                table = table.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(INSERTED), len(table)))
            rows += (str({**about["partitionValues"], **row}) for row in table.to_pylist())
        found.append(sorted(rows))
    return found


class Merged:
    """topicQueueTable as delta-rs makes it by appending and MERGE, of what the pure fold expects of each batch."""

    def __init__(self, folder: Path) -> None:
        self.lake_dir = folder
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        folder.mkdir()
        self.table = open_table(folder / TABLE, TOPIC_QUEUE_TABLE, 30)

    def write(self, rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> None:
        """Commit the difference to the rows before."""
        keys = TOPIC_QUEUE_TABLE.key
        changed = [
            dict(zip(TOPIC_QUEUE_TABLE.column_names, (*key, *(rows.get(key) or self.rows[key])), strict=True))
            | {"gone": key not in rows}
            for key in {**self.rows, **rows}
            if self.rows.get(key) != rows.get(key)
        ]
        only_new = not any((row[keys[0]], row[keys[1]]) in self.rows for row in changed)
        self.rows = rows
        if not changed:
            return
        schema = arrow_schema(TOPIC_QUEUE_TABLE)
        if only_new:
            new = [{name: row[name] for name in schema.names} for row in changed]
            write_deltalake(self.table, pa.Table.from_pylist(new, schema=schema), mode="append")
            return
        source = pa.Table.from_pylist(changed, schema=schema.append(pa.field("gone", pa.bool_())))
        merge = self.table.merge(
            source, " and ".join(f't."{name}" = s."{name}"' for name in keys), source_alias="s", target_alias="t"
        )
        values = {f'"{name}"': f's."{name}"' for name in schema.names}
        merge.when_matched_delete("s.gone").when_matched_update(values).when_not_matched_insert(values).execute()


def all_of_it(lake_dir: Path, lake: DeltaLake) -> tuple[Any, ...]:
    """What must not depend on who wrote the files."""
    assert_chain(lake_dir)
    epochs = [epoch and (epoch.epoch, epoch.versions[TABLE], epoch.versions[HISTORY]) for epoch in lake.epochs]
    return epochs, lakes.last_epoch_tables(lake_dir), ordered(lakes.history(lake_dir)), feed(lake_dir)


@settings(max_examples=min(60, max(3, settings().max_examples // 12)))
@given(records=logs, sizes=cuts)
def test_files_make_the_tables_that_delta_rs_makes(
    tmp_path_factory: pytest.TempPathFactory, records: list[LogRecord], sizes: list[int]
) -> None:
    """Version by version, and row by row of the change data feed."""
    folder = tmp_path_factory.mktemp("both")
    cut = [*batches(records, sizes), []]
    lake = drive(folder / "files", cut)
    assert_chain(folder / "files")
    merged, state = Merged(folder / "merged"), RouteState()
    found = []
    for batch, epoch in zip(cut, lake.epochs, strict=True):
        state = Expected(batch, state).state
        merged.write(tables_of(state)[TABLE])
        if epoch is not None:
            found.append((epoch.versions[TABLE], merged.table.version()))
    assert [files for files, _ in found] == [delta_rs for _, delta_rs in found]
    assert feed(folder / "files") == feed(folder / "merged")
    assert lakes.last_epoch_tables(folder / "files")[TABLE] == merged.rows
    history = ordered(lakes.history(folder / "files"))
    assert [row for row in history if row[3] >= 0] == Expected(records).history()
    assert list((folder / "files.spool").iterdir()) == []


TOPICS = [f"topic-{number:04}" for number in range(600)]
REGISTRATIONS = written(
    [
        (1, make.register(table=make.topics(*TOPICS))),
        (1, make.register("x:1", name=STRANGE, table=make.topics(*TOPICS))),
        (1, make.wipe()),
        (1, make.register("y:1", name="y", table=make.topics(*TOPICS))),
        (1, make.delete_topic("topic-0007")),
        (1, make.unregister("x:1", name=STRANGE)),
    ]
)
AT_ONCE = [REGISTRATIONS[:2], REGISTRATIONS[2:4], REGISTRATIONS[4:]]
"""All new; one group changed and another new; rows gone, and all of a group."""


def test_one_commit_has_partitions_that_are_replaced_and_such_that_are_new(tmp_path: Path) -> None:
    lake_dir = tmp_path / "lake"
    drive(lake_dir, AT_ONCE)
    kinds = [[kind for kind, _ in actions(lake_dir, TABLE, version)] for version in versions(lake_dir, TABLE)]
    assert [[each.count(kind) for kind in ("add", "remove", "cdc", "txn")] for each in kinds] == [
        [2, 0, 0, 1],
        [2, 1, 2, 1],
        [2, 3, 3, 1],
    ]
    assert [(each[0], each[-1]) for each in kinds] == [("commitInfo", "txn")] * 3
    changed = CommitReader(str(lake_dir), TOPIC_QUEUE_TABLE).changes(2, 2, lambda: None)
    assert changed is not None
    assert Counter(zip(changed["brokerName"].to_pylist(), changed[GONE].to_pylist(), strict=True)) == {
        ("b", False): len(TOPICS),
        ("y", False): len(TOPICS),
    }


def test_the_staging_folder_keeps_nothing_that_is_not_in_the_table(tmp_path: Path) -> None:
    """A fold runs for months, and creates that folder again only when it starts."""
    lake_dir = tmp_path / "lake"
    few, many = written(
        [(1, make.register(table=make.topics(*TOPICS[:2]))), (1, make.register(table=make.topics(*TOPICS)))]
    )
    drive(lake_dir, [[few], [many]])  # of the second all rows of routeChangeTable are in the shard's file
    for name in (TABLE, HISTORY):
        staged, table = (
            {str(file.relative_to(root)) for file in root.rglob("*.parquet")}
            for root in (lake_dir / "_staging" / name, lake_dir / name)
        )
        assert staged <= table


def about(lake_dir: Path, name: str, said: dict[str, Any]) -> tuple[Any, ...]:
    path = lake_dir / name / unquote(said["path"])
    assert said["size"] == path.stat().st_size
    with pq.ParquetFile(path) as file:
        assert b"ARROW:schema" not in (file.metadata.metadata or {})
        group = file.metadata.row_group(0)
        compressions = {group.column(at).compression for at in range(group.num_columns)}
        types = [(field.name, field.type, field.nullable) for field in file.schema_arrow]
    return said["partitionValues"], path.stat().st_mode, compressions, types


def test_the_files_are_as_delta_rs_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders, permissions, columns and their types, compression, and that no types of Arrow's own are said."""
    drive(tmp_path / "files", AT_ONCE[:1])
    monkeypatch.setattr(shard_files, "ROWS_WORTH_A_FILE", 1_000_000)
    monkeypatch.setattr(TopicFiles, "partitions", lambda self: [])
    drive(tmp_path / "delta-rs", AT_ONCE[:1])
    writer = open_writer(tmp_path / "delta-rs")
    rows = [
        dict(zip(TOPIC_QUEUE_TABLE.column_names, (*key, *values), strict=True))
        for key, values in Expected(AT_ONCE[0]).tables()[TABLE].items()
    ]
    writer._append(
        TOPIC_QUEUE_TABLE, [pa.Table.from_pylist(rows, schema=arrow_schema(TOPIC_QUEUE_TABLE))], Transaction("q", 9)
    )
    for name in (TABLE, HISTORY):
        made = []
        for lake_dir in (tmp_path / "files", tmp_path / "delta-rs"):
            adds = [add for kind, add in actions(lake_dir, name, 1) if kind == "add"]
            made.append({add["path"].rpartition("/")[0]: about(lake_dir, name, add) for add in adds})
        assert made[0] == made[1]


def test_statistics_of_the_files_are_true(tmp_path: Path) -> None:
    """Also of texts that are cut, if their last letter has no successor."""
    odd = (*(letter * 300 for letter in "a\ud7ff\U0010ffff"), "b" * 255 + "\U0010ffff" * 45)
    for number, topic in enumerate(odd):
        lake_dir = tmp_path / str(number)
        drive(lake_dir, [written([(1, make.register(table=make.topics("T", topic)))])])
        for name in (TABLE, HISTORY):
            for kind, add in actions(lake_dir, name, 1):
                if kind == "add":
                    assert_true(json.loads(add["stats"]), read(lake_dir, name, add))


def assert_true(stats: dict[str, Any], rows: pa.Table) -> None:
    assert stats["numRecords"] == len(rows)
    assert "topic" in stats["minValues"] or not rows["topic"].drop_null()
    for column in rows.column_names:
        values = rows[column].drop_null().to_pylist()
        assert stats["nullCount"][column] == len(rows) - len(values)
        for said, true in (("minValues", min), ("maxValues", max)):
            found = stats[said].get(column)
            if not isinstance(found, str):
                assert found in (None, true(values, default=None))
            elif column == "eventTime":
                assert datetime.fromisoformat(found) == true(values)
            else:
                assert true([found, *values]) == found
                assert len(found) <= STATISTICS_LENGTH


@pytest.mark.parametrize("why", ["another file system", "another user's"])
def test_what_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    link, made = os.link, Counter[str]()

    def elsewhere(source: Path, target: Path) -> None:
        if ".spool" in str(source):
            made["links"] += 1
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, target)

    linked = drive(tmp_path / "linked", AT_ONCE)
    monkeypatch.setattr(os, "link", elsewhere)
    if why == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    copied = drive(tmp_path / "copied", AT_ONCE)
    assert bool(made["links"]) == (why == "another file system")
    assert all_of_it(tmp_path / "copied", copied) == all_of_it(tmp_path / "linked", linked)


def test_rows_of_another_epoch_are_not_committed(tmp_path: Path) -> None:
    lake = DeltaLake(open_writer(tmp_path / "lake"))
    written_as_second = WrittenHistory(2, DataFile("", 1, 1, "{}", 0), [])
    with pytest.raises(ValueError, match="epoch 2"):
        lake.writer.write("q", 0, Batch(histories=[written_as_second]))
    assert list(versions(tmp_path / "lake", HISTORY)) == []


@pytest.mark.parametrize(("times", "why"), [(1, "no change of it"), (2, "twice")])
def test_a_partition_without_a_change_or_named_twice_is_not_committed(tmp_path: Path, times: int, why: str) -> None:
    lake = DeltaLake(open_writer(tmp_path / "lake"))
    with pytest.raises(ValueError, match=why):
        lake.writer.write("q", 0, Batch(partitions=[Partition({"brokerName": "a"}, None, None)] * times))
    assert lake.writer.tables[TOPIC_QUEUE_TABLE.name].version == 0


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full must not stay so because of it."""
    writer = DataFileWriter(tmp_path, pa.schema([("topic", pa.string())]))

    def full(rows: pa.Table) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writer._writer, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        writer.write(pa.table({"topic": ["T"]}))
    assert list(tmp_path.iterdir()) == []

# SPDX-License-Identifier: Apache-2.0
"""LakeWriter on real Delta tables: what an epoch holds, and how it is written."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from msgspec.structs import replace

from dev.support import events as make
from dev.support import lakes
from dev.support.chain import assert_chain
from dev.support.drive import DeltaLake, drive, open_writer
from dev.support.expected import Expected
from dev.support.generated_logs import batches, cuts, logs, written
from dev.support.microbatches import Query, ordered
from eventlog.base import LogRecord
from lake.write.batch import Batch
from schemas.events import AnyEvent, Event, encode, routing_key
from schemas.limits import MAX_BROKER_NAME_PATH_BYTES
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE


def one_by_one(*events: Event, after_ms: int = 0) -> list[list[LogRecord]]:
    """Each event a micro-batch of its own."""
    return [[record] for record in written([(after_ms, event) for event in events])]


def operation(table: DeltaTable, version: int) -> str:
    (entry,) = [entry for entry in table.history() if entry["version"] == version]
    return str(entry["operation"])


def actions(lake_dir: Path, name: str, version: int) -> list[dict[str, Any]]:
    text = (lake_dir / name / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@settings(max_examples=min(100, max(3, settings().max_examples // 8)))
@given(records=logs, sizes=cuts)
def test_the_tables_are_what_the_fold_says(
    tmp_path_factory: pytest.TempPathFactory, records: list[LogRecord], sizes: list[int]
) -> None:
    lake_dir = tmp_path_factory.mktemp("lake")
    drive(lake_dir, [*batches(records, sizes), []])
    expected = Expected(records)
    assert lakes.last_epoch_tables(lake_dir) == lakes.state_tables(lake_dir) == expected.tables()
    history = [row for row in lakes.history(lake_dir) if row["seq"] >= 0]
    assert ordered(history) == expected.history()
    assert [row["offset"] for row in lakes.quarantine(lake_dir)] == [offset for offset, _ in expected.unreadable]
    lakes.check_epochs(lake_dir)
    assert_chain(lake_dir)


def test_an_epoch_names_one_cut_of_all_tables(tmp_path: Path) -> None:
    events = [make.register(), make.register("x:1", name="x"), make.delete_topic("T"), make.unregister()]
    records = written([(10, event) for event in events])
    drive(tmp_path, [[record] for record in records])
    for count, commit in enumerate(lakes.commits(tmp_path), 1):
        assert commit["logOffset"] == count
        assert commit["eventTime"].timestamp() * 1000 == records[count - 1].event_time_ms
        assert lakes.state_tables(tmp_path, commit) == Expected(records[:count]).tables()


def test_new_rows_are_appended_and_changed_ones_merged(tmp_path: Path) -> None:
    lake = drive(tmp_path, one_by_one(make.register(), make.register(table=make.topics("T", "U", "W")), make.wipe()))
    table = DeltaTable(str(tmp_path / "topicQueueTable"))
    versions = [epoch.versions["topicQueueTable"] for epoch in lake.epochs if epoch is not None]
    assert [operation(table, version) for version in versions] == ["WRITE", "WRITE", "MERGE"]


def test_only_changed_tables_get_a_version(tmp_path: Path) -> None:
    lake = drive(tmp_path, one_by_one(make.register(), make.put("n", "k")), liveness_interval_s=3600)
    first, second = [epoch for epoch in lake.epochs if epoch is not None]
    changed = {name for name in first.versions if first.versions[name] != second.versions[name]}
    assert changed == {"kvConfigTable", "routeChangeTable"}


def test_each_commit_bears_the_query_and_batch(tmp_path: Path) -> None:
    drive(tmp_path, one_by_one(make.register(), make.delete_topic("T")))
    for name in ("topicQueueTable", "brokerLiveTable", "routeChangeTable", "routeCommitTable"):
        table = DeltaTable(str(tmp_path / name))
        assert table.transaction_version("q1") == 1, name


def test_the_change_feed_of_an_epoch_is_what_changed(tmp_path: Path) -> None:
    """The gateway follows the tables by it."""
    events = [
        make.register(),
        make.register("x:1", name="x", filter_server_list=["f:1"]),
        make.wipe(),
        make.delete_topic("T"),
        make.unregister("x:1", name="x"),
        make.put("n", "k", "1"),
        make.put("n", "k", "2"),
        make.delete("n", "k"),
    ]
    drive(tmp_path, one_by_one(*events))
    commits = lakes.commits(tmp_path)
    before = Expected([]).tables()
    versions = dict.fromkeys((table.name for table in STATE_TABLES), 0)
    for commit in commits:
        after = lakes.state_tables(tmp_path, commit)
        for table in STATE_TABLES:
            version = dict(commit["versions"])[table.name]
            feed = []
            if version > versions[table.name]:
                reader = DeltaTable(str(tmp_path / table.name)).load_cdf(
                    starting_version=versions[table.name] + 1, ending_version=version
                )
                feed = pa.table(reader.read_all()).to_pylist()
            old = {
                _key(table.key, row): _values(table.value_columns, row)
                for row in feed
                if row["_change_type"] in ("delete", "update_preimage")
            }
            new = {
                _key(table.key, row): _values(table.value_columns, row)
                for row in feed
                if row["_change_type"] in ("insert", "update_postimage")
            }
            was, now = before[table.name], after[table.name]
            assert old == {key: was[key] for key in was if was[key] != now.get(key)}, (commit["epoch"], table.name)
            assert new == {key: now[key] for key in now if now[key] != was.get(key)}, (commit["epoch"], table.name)
            versions[table.name] = version
        before = after


def _key(names: tuple[str, ...], row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _values(names: tuple[str, ...], row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(lakes.plain(row[name]) for name in names)


# --- quiet batches and liveness ---


def test_a_batch_of_unchanged_heartbeats_makes_no_epoch(tmp_path: Path) -> None:
    lake = drive(tmp_path, one_by_one(make.register(), make.heartbeat(), make.heartbeat()), liveness_interval_s=3600)
    assert [epoch is not None for epoch in lake.epochs] == [True, False, False]
    assert lake.writer.log_offset == 3
    assert len(lakes.commits(tmp_path)) == 1


@pytest.mark.parametrize("hours", [7, -7])
def test_a_batch_without_changes_makes_an_epoch_if_the_last_one_is_old(tmp_path: Path, hours: int) -> None:
    """Otherwise maintenance deletes what that one names. It may be of a time when the clock was ahead."""
    quiet = one_by_one(make.clock(), make.clock(), make.register(), make.unregister(), *[make.clock()] * 3)
    query = Query(2)
    query.lake = lake = DeltaLake(open_writer(tmp_path))
    for batch in quiet[:5]:
        query.run(batch)
    known = lake.writer._progress
    lake.writer._progress = replace(known, commit_time=known.commit_time - timedelta(hours=hours))
    for batch in quiet[5:]:
        query.run(batch)
    assert [epoch is not None for epoch in lake.epochs] == [False, False, True, True, False, True, False]
    assert [commit["logOffset"] for commit in lakes.commits(tmp_path)] == [3, 4, 6]
    assert_chain(tmp_path)


def test_liveness_alone_is_committed_when_it_is_due(tmp_path: Path) -> None:
    lake = drive(tmp_path, one_by_one(make.register(), make.heartbeat(), after_ms=1_000), liveness_interval_s=0)
    assert [epoch is not None for epoch in lake.epochs] == [True, True]
    (live,) = lakes.rows(tmp_path, "brokerLiveTable")
    assert live["lastUpdateOffset"] == 2


def test_a_changed_live_row_comes_with_its_epoch_a_heartbeat_waits_until_it_is_due(tmp_path: Path) -> None:
    query = Query(2)
    query.lake = lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600))

    def heard() -> dict[str, int]:
        return {row["brokerName"]: row["lastUpdateOffset"] for row in lakes.rows(tmp_path, "brokerLiveTable")}

    def is_exact() -> bool:
        last = lakes.commits(tmp_path)[-1]
        return bool(last["livenessOffset"] == last["logOffset"])

    records = written(
        [
            (0, make.register()),
            (0, make.register("x:1", name="x")),
            (5, make.heartbeat()),
            (5, make.heartbeat("x:1", name="x")),
            (5, make.put("n", "k")),
            (5, make.register("x:1", name="x", version=make.V2)),
            (5, make.put("n", "k", "again")),
        ]
    )
    query.run(records[:2])
    query.run(records[2:5])
    assert heard() == {"b": 1, "x": 2}
    assert not is_exact()
    query.run(records[5:6])
    assert heard() == {"b": 1, "x": 6}
    lake.writer._liveness_interval_s = 0
    query.run(records[6:])
    assert heard() == {"b": 3, "x": 6}
    assert is_exact()


def test_liveness_offset_waits_for_every_shard_of_a_new_run(tmp_path: Path) -> None:
    """A new driver run does not know which heartbeats its predecessor had not written yet."""
    records = written([(0, make.register()), (0, make.register("x:1", name="x")), (5, make.heartbeat())])
    query = Query(2)
    query.lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600))
    query.run(records[:2])
    query.run(records[2:])  # quiet: pending in the writer, which is lost now
    query.lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600), first_batch=2)
    query._run += 1
    more = written([(0, make.register("y:1", name="y")), (0, make.clock()), (0, make.put("n", "k"))])
    more = [record._replace(offset=record.offset + 3, event_time_ms=record.event_time_ms + 10) for record in more]
    for record in more:
        query.run([record])
    one_shard, quiet_or_whole = lakes.commits(tmp_path)[1], lakes.commits(tmp_path)[-1]
    assert one_shard["livenessOffset"] < one_shard["logOffset"]
    assert quiet_or_whole["livenessOffset"] == quiet_or_whole["logOffset"]
    live = {row["brokerName"]: row["lastUpdateOffset"] for row in lakes.rows(tmp_path, "brokerLiveTable")}
    assert live == {"b": 3, "x": 2, "y": 4}


# --- names ---

ODD_NAMES = (
    "it's",
    'double"quote',
    "sp ace",
    "per%cent",
    "per%2Fcent",
    "sl/ash",
    "back\\slash",
    "ünï-☃-𝔘",
    "..",
    ".",
    "a=b",
    "colon:semi;",
    "#?&+",
    "{brace}[bracket]",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "NULL",
    "x" * 66,
    "UPPER",
    "upper",
    " leading",
    "trailing ",
    "-- comment",
    "$1",
)


def test_odd_names_survive_and_can_be_merged_again(tmp_path: Path) -> None:
    """brokerName is a partition column, hence a directory's name, and part of a SQL predicate."""
    events: list[AnyEvent] = []
    for number, name in enumerate(ODD_NAMES):
        table = make.topics(name, "T")
        events.append(make.register(f"10.0.0.{number}:1", name=name, cluster=name, table=table, zone_name=name))
    events += [make.wipe(name) for name in ODD_NAMES]
    events += [make.delete_topic("T"), *(make.put(name, name, name) for name in ODD_NAMES)]
    events += [make.unregister(f"10.0.0.{n}:1", name=name, cluster=name) for n, name in enumerate(ODD_NAMES) if n % 2]
    records = written([(1, event) for event in events])
    for sizes in ([7], [200]):
        lake_dir = tmp_path / str(sizes[0])
        drive(lake_dir, list(batches(records, sizes)))
        assert lakes.last_epoch_tables(lake_dir) == Expected(records).tables()


# --- doing it again ---


def test_a_batch_that_is_done_is_not_written_again(tmp_path: Path) -> None:
    query = Query(2)
    lake = query.lake = DeltaLake(open_writer(tmp_path))
    query.run(written([(0, make.register())]))
    versions = {table.name: DeltaTable(str(tmp_path / table.name)).version() for table in ALL_TABLES}
    for writer in (lake.writer, open_writer(tmp_path)):
        again = Query(2)
        again.lake = DeltaLake(writer)
        again.run(written([(0, make.register())]))
        assert again.lake.epochs == [None]
    assert versions == {table.name: DeltaTable(str(tmp_path / table.name)).version() for table in ALL_TABLES}


def test_a_table_that_cannot_be_written_stops_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted batch is finished first. Then the same batch again writes the rest, and nothing twice."""
    query = Query(2)
    lake = query.lake = DeltaLake(open_writer(tmp_path))
    with monkeypatch.context() as patch:

        def full(*args: object) -> None:
            raise OSError("No space left on device")

        patch.setattr(lake.writer, "_apply", full)
        with pytest.raises(OSError, match="No space left"):
            query.run(written([(0, make.register())]))
    assert lakes.commits(tmp_path) == []
    assert [row["tableName"] for row in lakes.rows(tmp_path, "routeChangeTable")].count("topicQueueTable") == 2
    again = Query(2)
    again.lake = DeltaLake(open_writer(tmp_path))
    again.run(written([(0, make.register())]))
    assert lakes.last_epoch_tables(tmp_path) == Expected(written([(0, make.register())])).tables()
    assert len(lakes.history(tmp_path)) == len(lakes.rows(tmp_path, "routeChangeTable"))
    lakes.check_epochs(tmp_path)


def test_an_empty_batch_is_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    assert writer.write("q", 0, Batch()) is None
    assert lakes.commits(tmp_path) == []


def test_a_record_that_cannot_be_read_makes_an_epoch(tmp_path: Path) -> None:
    """So that a request that waits for its offset gets its answer."""
    event = make.register()
    bad = [LogRecord(1, 1_000, "b:b", b"garbage"), LogRecord(2, 1_001, routing_key(event), encode(event))]
    lake = drive(tmp_path, [bad[:1], bad[1:]])
    assert [epoch.log_offset for epoch in lake.epochs if epoch is not None] == [1, 2]
    (row,) = lakes.quarantine(tmp_path)
    assert (row["offset"], row["key"], row["payload"]) == (1, "b:b", b"garbage")
    assert row["eventTime"].timestamp() == 1.0
    assert "format" in row["error"]


def test_outcomes_are_named_in_the_epoch(tmp_path: Path) -> None:
    drive(tmp_path, one_by_one(make.register(), make.wipe(), make.register("a1:1", 1, table=make.topics("T"))))
    outcomes = [entry for commit in lakes.commits(tmp_path) for entry in json.loads(commit["outcomes"] or "[]")]
    assert [(entry["offset"], entry["outcome"], entry["reason"], entry["result"]) for entry in outcomes] == [
        (2, "applied", None, {"wipeTopicCount": 2}),
        (3, "rejected", "SINGLE_TOPIC_REFUSED", None),
    ]


def test_tables_are_as_declared(tmp_path: Path) -> None:
    open_writer(tmp_path)
    for declared in ALL_TABLES:
        table = DeltaTable(str(tmp_path / declared.name))
        metadata = table.metadata()
        assert metadata.name == declared.name
        assert metadata.description == declared.comment
        assert tuple(metadata.partition_columns) == declared.partition_by
        feed = metadata.configuration.get("delta.enableChangeDataFeed")
        assert feed == ("true" if declared in STATE_TABLES else "false")
        assert metadata.configuration.get("delta.enableDeletionVectors") == "false"
        fields = {field.name: field for field in table.schema().fields}
        for column in declared.columns:
            assert fields[column.name].nullable == column.nullable
            assert fields[column.name].metadata["comment"] == column.comment
    assert ALL_TABLES[-1] is ROUTE_COMMIT_TABLE


@pytest.mark.parametrize("name", ["x" * MAX_BROKER_NAME_PATH_BYTES, "é" * (MAX_BROKER_NAME_PATH_BYTES // 6)])
def test_the_longest_broker_name_fits_into_a_table(tmp_path: Path, name: str) -> None:
    assert len(quote(name, safe="")) == MAX_BROKER_NAME_PATH_BYTES
    records = written([(10, event) for event in (make.register(name=name), make.delete_topic("T"))])
    drive(tmp_path, [[record] for record in records])
    table = DeltaTable(str(tmp_path / TOPIC_QUEUE_TABLE.name))
    table.optimize.compact()
    assert {row["brokerName"] for row in lakes.rows(tmp_path, TOPIC_QUEUE_TABLE.name)} == {name}

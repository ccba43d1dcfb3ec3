# SPDX-License-Identifier: Apache-2.0
"""The log reader: what each kind of commit changed, and lakes that are not on a local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from api.gateway.follower import Follower
from dev.benchmarks.harness.lake_writer import LakeWriter
from dev.support.view_tables import as_tables, queue, row
from lake.delta.reader import CommitReader
from lake.history.history import History
from lake.view_loader import state_logs
from nameserver.view.snapshot import RouteView, no_pause
from schemas.tables import KV_CONFIG_TABLE, ROUTE_COMMIT_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE


@pytest.fixture
def writer(tmp_path: Path) -> LakeWriter:
    return LakeWriter(tmp_path / "lake")


def changed(writer: LakeWriter, first: int, last: int) -> list[tuple[str, str, int | None]]:
    """(broker, topic, readQueueNums or None if removed) in order."""
    table = state_logs(str(writer.path))[TOPIC_QUEUE_TABLE.name].changes(first, last, no_pause)
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    return [(r["brokerName"], r["topic"], None if r["_gone"] else r["readQueueNums"]) for r in rows]


def test_what_each_kind_of_commit_changed(writer: LakeWriter) -> None:
    table = writer.table("topicQueueTable")
    writer.commit({"topicQueueTable": {("ü/1 %", "t"): queue(1), ("ü/1 %", "u"): queue(2)}})
    assert sorted(changed(writer, 0, 1)) == [("ü/1 %", "t", 1), ("ü/1 %", "u", 2)]
    writer.commit({"topicQueueTable": {("ü/1 %", "t"): queue(3), ("ü/1 %", "u"): None, ("b", "t"): queue(4)}})
    found = changed(writer, 2, 2)
    assert found[0] == ("ü/1 %", "u", None)  # removals first
    assert sorted(found[1:]) == [("b", "t", 4), ("ü/1 %", "t", 3)]
    writer.commit({"topicQueueTable": {("b", "v"): queue(5)}})
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(10_000, dry_run=False)
    assert changed(writer, 4, table.version()) == []
    assert changed(writer, 5, 4) == []
    before = table.version()
    table.restore(2)
    net: dict[tuple[str, str], int | None] = {
        (broker, topic): nums for broker, topic, nums in changed(writer, before + 1, before + 1)
    }
    assert net[("b", "v")] is None and net[("b", "t")] == 4


def test_a_missing_commit_and_deletion_vectors_are_errors(writer: LakeWriter) -> None:
    writer.commit(row(1))
    with pytest.raises(FileNotFoundError):
        changed(writer, 1, 2)
    file = writer.path / "topicQueueTable" / "_delta_log" / f"{2:020d}.json"
    file.write_text(json.dumps({"remove": {"path": "x", "dataChange": True, "deletionVector": {"storageType": "u"}}}))
    with pytest.raises(ValueError, match="deletion vectors"):
        changed(writer, 2, 2)
    file.write_text('{"add": {"pa')
    with pytest.raises(ValueError):
        changed(writer, 2, 2)


def test_a_lake_behind_a_uri(writer: LakeWriter) -> None:
    uri = f"file://{writer.path}"
    follower = Follower(uri, lambda view, outcomes: None)
    assert not follower.poll()
    writer.commit({**row(1, "ü/1 %"), "kvConfigTable": {("ns", "k"): {"value": "v"}}})
    assert follower.poll()
    writer.commit(row(2, "ü/1 %"))
    writer.table("topicQueueTable").optimize.compact()
    writer.commit({"kvConfigTable": {("ns", "k"): None}})
    assert follower.poll()
    assert (follower.steps, follower.reloads, follower.errors) == (1, 1, 0)
    assert as_tables(follower.view) == {spec.name: writer.full_scan(spec.name) for spec in STATE_TABLES}
    assert [commit.epoch for commit in History(uri).epochs()] == [3, 2, 1]
    assert History(uri).resolve("2").commit.epoch == 2
    log = CommitReader(uri, ROUTE_COMMIT_TABLE)
    assert log.mtime_ns() is None
    assert log.find(1) == log.find(1) is not None and log.find(99) is None


def test_an_append_only_table(writer: LakeWriter) -> None:
    log = CommitReader(str(writer.path), KV_CONFIG_TABLE)
    assert log.appended(0) is None
    writer.commit({"kvConfigTable": {("ns", "k"): {"value": "v"}}})
    found = log.appended(1)
    assert found is not None and found.to_pylist() == [{"namespace": "ns", "key": "k", "value": "v"}]
    assert DeltaTable(str(writer.path / "kvConfigTable")).version() == 1
    assert RouteView.empty().kv == {}

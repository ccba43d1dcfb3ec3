# SPDX-License-Identifier: Apache-2.0
"""Loader and follower on real Delta tables: growing, maintained, broken, replaced."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from api.gateway import follower as follower_module
from api.gateway.follower import Follower
from dev.benchmarks.harness.lake_writer import START, LakeWriter
from dev.support.feed import age_log
from dev.support.loops import until
from dev.support.view_tables import as_tables, changes_of_tables, complete, queue, queue_rows, row
from lake.commits import commits_between, last_commit
from lake.delta import reader
from lake.delta.log import active, files_of
from lake.view_loader import load_view
from nameserver.view.snapshot import RouteView
from schemas.errors import SetupError
from schemas.route_commit import CommandOutcome
from schemas.tables import ROUTE_COMMIT_TABLE, STATE_TABLES

Got = list[tuple[RouteView, list[CommandOutcome]]]

EXAMPLES = 12 if settings.default is None else max(12, settings.default.max_examples // 20)
"""Of tests that write a lake for each."""


def scan(writer: LakeWriter) -> dict[str, Any]:
    return {spec.name: writer.full_scan(spec.name) for spec in STATE_TABLES}


def follow(path: Path) -> tuple[Follower, Got]:
    got: Got = []
    return Follower(str(path), lambda view, outcomes: got.append((view, outcomes))), got


@pytest.fixture
def writer(tmp_path: Path) -> LakeWriter:
    return LakeWriter(tmp_path / "lake")


def test_a_step_reports_the_changes_that_lead_to_the_view(writer: LakeWriter) -> None:
    """They are there when the view is announced. A view that is loaded as a whole has none."""
    told: list[Any] = []
    follower = Follower(str(writer.path), lambda view, outcomes: told.append((view.epoch, follower.changes)))
    writer.commit(row(4))
    follower.poll()
    assert told == [(1, None)]
    writer.commit(row(8) | {"kvConfigTable": {("n", "k"): {"value": "v"}}})
    follower.poll()
    epoch, changes = told[1]
    assert (epoch, changes.commit.epoch, changes.kv) == (2, 2, {("n", "k"): ("v",)})


# --- view = full scan ---

MAINTENANCE: dict[str, Callable[[DeltaTable], object]] = {
    "compact": lambda table: table.optimize.compact(),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "checkpoint": lambda table: table.create_checkpoint(),
    "clean": lambda table: table.cleanup_metadata(),
}

steps = st.lists(
    st.one_of(
        changes_of_tables.map(lambda changes: ("commit", complete(changes))),
        changes_of_tables.map(lambda changes: ("commit", complete(changes))),
        st.tuples(st.sampled_from(sorted(MAINTENANCE)), st.sampled_from([spec.name for spec in STATE_TABLES])),
        st.just(("poll", None)),
        st.just(("restore", None)),
    ),
    min_size=1,
    max_size=8,
)


@given(steps)
@settings(max_examples=EXAMPLES)
def test_following_a_lake_equals_a_full_scan_of_it(script: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = LakeWriter(Path(folder))
        follower, got = follow(writer.path)
        scans = {}
        for what, argument in script:
            if what == "commit":
                writer.commit(argument)
                scans[writer.epoch] = scan(writer)
            elif what == "poll":
                follower.poll()
            elif what == "restore":
                ahead_and_back(writer)
            else:
                MAINTENANCE[what](writer.table(argument))
        follower.poll()
        follower.poll()
        assert follower.view.epoch == writer.epoch
        assert as_tables(follower.view) == scan(writer)
        for view, _ in got:
            assert as_tables(view) == scans[view.epoch]
        if writer.epoch:
            table = DeltaTable(str(writer.path / ROUTE_COMMIT_TABLE.name))
            newest = last_commit(writer.path, files_of(table))
            assert newest is not None and as_tables(load_view(str(writer.path), newest)) == scan(writer)


def ahead_and_back(writer: LakeWriter) -> None:
    """A writer that was killed before routeCommitTable, and one with a new checkpoint that rewinds the tables."""
    before = {name: dict(rows) for name, rows in writer.state.items()}
    versions = {spec.name: writer.table(spec.name).version() for spec in STATE_TABLES}
    writer.commit({**row(99, "broker-a", "orders"), **row(98, "broker-b", "ghost")}, only_tables=True)
    for name, version in versions.items():
        if writer.table(name).version() > version:
            writer.table(name).restore(version)
    writer.state = before


def test_a_view_loads_at_any_commit(writer: LakeWriter) -> None:
    scans = []
    for number in range(4):
        writer.commit(row(number))
        scans.append(scan(writer))
    commits = commits_between(writer.path, active(str(writer.path / "routeCommitTable")).files)
    assert [commit.epoch for commit in commits] == [1, 2, 3, 4]
    for commit, expected in zip(commits, scans, strict=True):
        view = load_view(str(writer.path), commit)
        assert as_tables(view) == expected
        assert (view.log_offset, view.event_time) == (commit.log_offset, commit.event_time)
    some = commits_between(writer.path, active(str(writer.path / "routeCommitTable")).files, first=2, last=3)
    assert some == commits[1:3]


# --- the tail ---


def test_a_step_reads_only_what_changed(writer: LakeWriter) -> None:
    writer.commit(row(1))
    follower, got = follow(writer.path)
    assert follower.poll() and not follower.poll()
    writer.commit(row(2))
    assert follower.poll()
    assert (follower.reloads, follower.steps) == (1, 1)
    assert [view.epoch for view, _ in got] == [1, 2]
    assert queue_rows(follower.view, "t1")["b1"].read_queue_nums == 2


def test_several_epochs_at_once_deliver_the_outcomes_of_each(writer: LakeWriter) -> None:
    writer.commit(row(0))
    follower, got = follow(writer.path)
    follower.poll()
    for number in range(1, 4):
        writer.commit(row(number), outcomes=[{"offset": number, "outcome": "applied", "result": {"wipeTopicCount": 4}}])
    writer.commit({}, outcomes=[{"offset": 9, "outcome": "rejected", "reason": "SINGLE_TOPIC_REFUSED"}])
    follower.poll()
    view, outcomes = got[-1]
    assert (len(got), view.epoch) == (2, 5)
    assert [outcome.offset for outcome in outcomes] == [1, 2, 3, 9]
    assert outcomes[0].result == {"wipeTopicCount": 4}
    assert outcomes[-1] == CommandOutcome(9, "rejected", "SINGLE_TOPIC_REFUSED")


def test_the_first_view_comes_with_the_latest_outcomes(writer: LakeWriter) -> None:
    writer.commit(row(0), outcomes=[{"offset": 1, "outcome": "rejected", "reason": "SINGLE_TOPIC_REFUSED"}])
    follower, got = follow(writer.path)
    follower.poll()
    assert [outcome.offset for outcome in got[0][1]] == [1]


def test_an_epoch_without_its_commit_row_does_not_exist(writer: LakeWriter) -> None:
    writer.commit(row(1))
    follower, _ = follow(writer.path)
    follower.poll()
    writer.commit(row(2), only_tables=True)
    assert not follower.poll()
    assert queue_rows(follower.view, "t1")["b1"].read_queue_nums == 1
    writer.commit({})
    follower.poll()
    assert queue_rows(follower.view, "t1")["b1"].read_queue_nums == 2


def test_maintenance_between_epochs_needs_no_reload(writer: LakeWriter) -> None:
    writer.commit(row(0) | {"kvConfigTable": {("ns", "k"): {"value": "0"}}})
    follower, _ = follow(writer.path)
    follower.poll()
    for number in range(1, 6):
        writer.commit({"topicQueueTable": {("b1", f"n{number}"): queue(number)}})
        writer.commit({"kvConfigTable": {("ns", f"k{number}"): {"value": "v"}}})
        if number % 2:
            follower.poll()
        for name in ("topicQueueTable", "kvConfigTable", "routeCommitTable"):
            assert writer.table(name).optimize.compact()["numFilesAdded"] == 1
            writer.table(name).create_checkpoint()
            writer.table(name).cleanup_metadata()
    writer.commit(row(7))
    follower.poll()
    assert as_tables(follower.view) == scan(writer)
    assert (follower.view.epoch, follower.reloads, follower.errors) == (writer.epoch, 1, 0)


# --- epochs that cannot be followed are loaded as a whole ---


def test_a_vacuumed_feed_means_a_reload(writer: LakeWriter) -> None:
    writer.commit(row(0))
    follower, got = follow(writer.path)
    follower.poll()
    writer.commit(row(1), outcomes=[{"offset": 5, "outcome": "applied"}])
    writer.commit(row(2))
    shutil.rmtree(writer.path / "topicQueueTable" / "_change_data")
    assert follower.poll()
    assert queue_rows(follower.view, "t1")["b1"].read_queue_nums == 2
    assert [outcome.offset for outcome in got[-1][1]] == [5]
    assert (follower.reloads, follower.errors, follower.view.epoch) == (2, 1, 3)
    writer.commit(row(3))
    follower.poll()
    assert (follower.view.epoch, follower.reloads) == (4, 2)


def test_a_log_cleaned_up_ahead_of_the_follower(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "_LOOK_UP_S", 0.0)
    writer.commit(row(0))
    follower, got = follow(writer.path)
    follower.poll()
    for number in range(1, 5):
        writer.commit(row(number), outcomes=[{"offset": number, "outcome": "applied"}])
    age_log(writer, "routeCommitTable")
    age_log(writer, "topicQueueTable")
    assert follower.poll()
    assert as_tables(follower.view) == scan(writer)
    assert [outcome.offset for outcome in got[-1][1]] == [1, 2, 3, 4]


def test_hundreds_of_epochs_behind(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "_MAX_EPOCHS_PER_STEP", 3)
    writer.commit(row(0))
    follower, got = follow(writer.path)
    follower.poll()
    for number in range(1, 8):
        writer.commit(row(number), outcomes=[{"offset": number, "outcome": "applied"}])
    while follower.poll():
        pass
    assert as_tables(follower.view) == scan(writer)
    assert [outcome.offset for _, outcomes in got for outcome in outcomes] == list(range(1, 8))


# --- broken lakes ---


def test_no_lake_is_an_empty_view_and_no_error(tmp_path: Path) -> None:
    follower, got = follow(tmp_path / "nothing")
    assert not follower.poll()
    LakeWriter(tmp_path / "nothing")
    assert not follower.poll()
    assert (follower.view.epoch, follower.view.log_offset) == (0, -1)
    assert (follower.commit_age_s, follower.errors, got) == (None, 0, [])


def commit_file(writer: LakeWriter, ahead: int) -> Path:
    version = writer.table("routeCommitTable").version() + ahead
    return writer.path / "routeCommitTable" / "_delta_log" / f"{version:020d}.json"


def test_a_torn_commit_keeps_the_last_good_view(writer: LakeWriter) -> None:
    writer.commit(row(1))
    got: Got = []
    follower = Follower(str(writer.path), lambda view, outcomes: got.append((view, outcomes)), poll_s=0.005)
    follower.start()
    try:
        until(lambda: follower.view.epoch == 1)
        whole = commit_file(writer, 0).read_bytes()
        torn = commit_file(writer, 1)
        torn.write_bytes(whole[: len(whole) // 2])
        until(lambda: follower.failing)
        assert follower.view.epoch == 1 and follower.last_error and follower.errors >= 1
        assert as_tables(follower.view) == scan(writer)
        torn.unlink()
        writer.commit(row(2))
        until(lambda: follower.view.epoch == 2)
        until(lambda: not follower.failing)
        assert as_tables(follower.view) == scan(writer)
    finally:
        follower.stop()


def test_missing_data_of_an_epoch_keeps_the_last_good_view(writer: LakeWriter, tmp_path: Path) -> None:
    writer.commit(row(1))
    follower, _ = follow(writer.path)
    follower.poll()
    writer.commit(row(2))
    hidden = tmp_path / "hidden"
    (writer.path / "topicQueueTable").rename(hidden)
    for _ in range(2):
        with pytest.raises(Exception, match=r"topicQueueTable|[Nn]o |not"):
            follower.poll()
        assert follower.view.epoch == 1
    hidden.rename(writer.path / "topicQueueTable")
    follower.poll()
    assert follower.view.epoch == 2 and as_tables(follower.view) == scan(writer)


def test_a_lake_that_went_away(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "_LOOK_UP_S", 0.0)
    writer.commit(row(1))
    follower, _ = follow(writer.path)
    follower.poll()
    shutil.rmtree(writer.path)
    with pytest.raises(FileNotFoundError):
        follower.poll()
    assert follower.view.epoch == 1
    with pytest.raises(FileNotFoundError, match="still showing epoch 1"):
        follower.poll()


@pytest.mark.parametrize("epochs", [1, 3, 5])
def test_a_lake_that_was_replaced(writer: LakeWriter, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "_LOOK_UP_S", 0.0)
    for number in range(3):
        writer.commit(row(number))
    follower, _ = follow(writer.path)
    follower.poll()
    shutil.rmtree(writer.path)
    other = LakeWriter(writer.path)
    for number in range(epochs):
        other.commit(row(number, "other"))
    while follower.poll():
        pass
    assert follower.view.epoch == epochs
    assert as_tables(follower.view) == scan(other)
    assert follower.reloads == 2


def test_a_lake_of_a_newer_format_is_not_guessed_at(writer: LakeWriter) -> None:
    writer.commit(row(1))
    (writer.path / "lake.json").write_text(json.dumps({"format": 99}))
    follower, _ = follow(writer.path)
    with pytest.raises(SetupError, match="format 99"):
        follower.poll()


# --- the thread ---


def test_the_thread_survives_everything(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As pyo3's PanicException."""

    def explode(*_: object) -> None:
        raise Panic("boom")

    calls: list[int] = []

    def on_view(view: RouteView, outcomes: list[CommandOutcome]) -> None:
        calls.append(view.epoch)
        if view.epoch == 2:
            raise ValueError("the caller's fault")

    first_commit_s = (START + timedelta(seconds=1.5)).timestamp()
    follower = Follower(str(writer.path), on_view, poll_s=0.005, clock=lambda: first_commit_s + 3)
    others = threading.enumerate()
    follower.start()
    try:
        writer.commit(row(1))
        until(lambda: follower.view.epoch == 1)
        assert follower.commit_age_s == pytest.approx(3)
        writer.commit(row(2))
        until(lambda: follower.errors == 1)
        assert follower.last_error == "ValueError: the caller's fault"
        with monkeypatch.context() as patch:
            patch.setattr(reader.CommitReader, "find", explode)
            until(lambda: follower.last_error == "Panic: boom")
        writer.commit(row(3))
        until(lambda: calls == [1, 2, 3] and not follower.failing)
        # Other tests of the process may have a follower running.
        mine = [thread for thread in threading.enumerate() if thread.name == "view-follower" and thread not in others]
        assert len(mine) == 1
    finally:
        follower.stop()
    assert not mine[0].is_alive()


def test_uncommitted_files_are_ignored(writer: LakeWriter) -> None:
    writer.commit(row(1))
    (writer.path / "topicQueueTable" / "brokerName=b1" / "part-killed.parquet").write_bytes(b"PAR1torn")
    (writer.path / "routeCommitTable" / "_delta_log" / "_commit_x.json.tmp").write_bytes(b"{")
    follower, _ = follow(writer.path)
    follower.poll()
    writer.commit(row(2))
    follower.poll()
    assert follower.view.epoch == 2

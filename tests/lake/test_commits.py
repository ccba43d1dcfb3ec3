# SPDX-License-Identifier: Apache-2.0
"""Rows of routeCommitTable, and the tail that follows them: what it goes on from, and what it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dev.benchmarks.harness.lake_writer import LakeWriter
from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from lake.commits import CommitTail, commits_between, last_commit, last_exact_commit
from lake.delta.log import active
from schemas.errors import SetupError
from schemas.route_commit import CommandOutcome, RouteCommit
from schemas.tables import ROUTE_COMMIT_TABLE


@pytest.fixture
def writer(tmp_path: Path) -> LakeWriter:
    return LakeWriter(tmp_path / "lake")


@pytest.fixture
def tail(writer: LakeWriter) -> CommitTail:
    return CommitTail(str(writer.path))


def commit(writer: LakeWriter, times: int = 1) -> None:
    for _ in range(times):
        writer.commit({"kvConfigTable": {("ns", f"k{writer.epoch}"): {"value": "v"}}})


def entry(writer: LakeWriter, version: int) -> Path:
    return writer.path / ROUTE_COMMIT_TABLE.name / "_delta_log" / f"{version:020d}.json"


def epochs(found: list[RouteCommit] | None) -> list[int] | None:
    return None if found is None else [commit.epoch for commit in found]


def test_it_reads_what_was_committed_since(writer: LakeWriter, tail: CommitTail) -> None:
    assert tail.read(10) is None, "it has not been opened"
    opened = tail.open()
    assert opened is not None and opened.newest is None and tail.read(10) == []
    commit(writer, 3)
    assert epochs(tail.read(2)) == [1, 2]
    writer.table(ROUTE_COMMIT_TABLE.name).optimize.compact()  # a commit without rows
    commit(writer)
    assert epochs(tail.read(10)) == [3, 4]
    assert tail.read(10) == []
    opened = tail.open()
    assert opened is not None and opened.newest == last_commit(writer.path)
    assert epochs(commits_between(writer.path, opened.files)) == [1, 2, 3, 4]


def test_it_does_not_go_on_behind_another_file(writer: LakeWriter, tail: CommitTail, tmp_path: Path) -> None:
    commit(writer, 2)
    tail.open()
    assert tail.is_same_table()
    shutil.rmtree(writer.path)
    other = LakeWriter(writer.path)
    commit(other, 3)
    assert not tail.is_same_table()
    assert tail.has_moved()
    assert tail.read(10) is None
    assert tail.open() is not None and tail.read(10) == []


def test_it_does_not_go_on_over_a_missing_epoch(writer: LakeWriter, tail: CommitTail) -> None:
    commit(writer)
    tail.open()
    writer.epoch += 1
    commit(writer)
    assert tail.read(10) is None


def test_after_an_error_it_has_to_be_opened(writer: LakeWriter, tail: CommitTail) -> None:
    tail.open()
    commit(writer, 2)
    whole = entry(writer, 2).read_bytes()
    entry(writer, 2).write_bytes(whole[:20])
    with pytest.raises(ValueError):
        tail.read(10)
    entry(writer, 2).write_bytes(whole)
    assert tail.read(10) is None
    assert tail.open() is not None and tail.read(10) == []


def test_no_table_and_a_newer_format(tmp_path: Path) -> None:
    tail = CommitTail(str(tmp_path))
    assert tail.open() is None
    (tmp_path / "lake.json").write_text('{"format": 999}')
    with pytest.raises(SetupError, match="format 999"):
        tail.open()


def test_the_last_commit_and_the_last_one_that_lacks_no_heartbeat(tmp_path: Path) -> None:
    events = [make.register(), make.heartbeat(), make.put("n", "k", "v")]
    drive(tmp_path, [[record] for record in written([(10, event) for event in events])], liveness_interval_s=3600)
    last, exact = last_commit(tmp_path), last_exact_commit(tmp_path)
    assert last is not None and exact is not None
    assert last.epoch > exact.epoch
    assert exact.liveness_offset == exact.log_offset and last.liveness_offset < last.log_offset
    assert [outcome.outcome for outcome in last.outcomes] == ["applied"]
    assert isinstance(last.outcomes[0], CommandOutcome) and last.without_outcomes().outcomes == ()
    files = active(str(tmp_path / ROUTE_COMMIT_TABLE.name), 1).files
    first = last_commit(tmp_path, files)
    assert first is not None and first.epoch == 1

# SPDX-License-Identifier: Apache-2.0
"""Killed between any two steps of a commit: the repeated batch ends where an undisturbed one would have ended."""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dev.support import events as make
from dev.support import lakes
from dev.support.chain import assert_chain
from dev.support.drive import SHARDS, DeltaLake, open_writer
from dev.support.expected import Expected
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import Garbage, written
from dev.support.microbatches import Key, Query, ordered
from eventlog.base import LogRecord
from lake.delta.ddl import open_lake
from lake.write.seed import read_seed
from lake.write.writer import LakeWriter, rewind
from schemas.errors import SetupError, UnavailableError
from schemas.tables import ROUTE_CHANGE_TABLE

Batches = Sequence[Sequence[LogRecord]]


class Killed(Exception):
    """Stands for the end of the process."""


def killed_after(writer: LakeWriter, writes: int, *, backwards: bool = False) -> LakeWriter:
    """The writer, made to die when so many of its Delta commits are done, one after the other in either direction."""
    left = writes
    inside = False

    def dying(work: Any) -> Any:
        def commit(*args: Any) -> None:
            nonlocal left, inside
            if inside:  # one of the two calls the other
                work(*args)
                return
            if left == 0:
                raise Killed
            left -= 1
            inside = True
            work(*args)
            inside = False

        return commit

    def one_by_one(steps: Sequence[Callable[[], None]]) -> None:
        for step in reversed(steps) if backwards else steps:
            step()

    writer._do = one_by_one  # type: ignore[method-assign]
    writer._apply = dying(writer._apply)  # type: ignore[method-assign]
    writer._append = dying(writer._append)  # type: ignore[method-assign]
    writer._commit_partitions = dying(writer._commit_partitions)  # type: ignore[method-assign]
    writer._append_history = dying(writer._append_history)  # type: ignore[method-assign]
    return writer


RECORDS = written(
    [
        (0, make.register(heartbeat_timeout_millis=3_000, filter_server_list=["f:1"])),
        (0, make.register("x:1", name="x", topic_queue_mapping_info_map={"T": make.mapping("T", "x")})),
        (5, make.put("n", "k")),
        (5, Garbage("b:b", b"garbage")),
        (5, make.wipe("x")),
        (5, make.delete_topic("T")),
        (5, make.put("n", "k", None)),
        (5, make.heartbeat()),
        (5, make.heartbeat("x:1", name="x")),
        (5, make.register("y:1", name="y")),
        (5, make.unregister("x:1", name="x")),
        (9_000, make.clock()),
    ]
)
BATCHES: Batches = [RECORDS[0:4], RECORDS[4:7], RECORDS[7:9], RECORDS[9:10], RECORDS[10:]]
WRITES = (10, 5, 2, 6, 7)
"""Delta commits of each batch."""
PLACES = [(number, writes) for number, count in enumerate(WRITES) for writes in range(count + 1)]


class Before(NamedTuple):
    """A lake before one of the batches, and what the query holds then."""

    lake_dir: Path
    number: int
    keys: dict[int, Key]
    max_ms: int

    def resumed(self, lake_dir: Path, run: int = 0) -> Query:
        """A process over a copy of the lake, or over what an earlier one has left there."""
        if not lake_dir.exists():
            shutil.copytree(self.lake_dir, lake_dir)
        query = Query(SHARDS)
        query.keys, query.max_ms, query._run = copy.deepcopy(self.keys), self.max_ms, run
        query.lake = DeltaLake(open_writer(lake_dir), first_batch=self.number)
        return query

    def killed(self, lake_dir: Path, writes: int, *, backwards: bool = False) -> None:
        """It dies in this batch, after so many writes."""
        query = self.resumed(lake_dir)
        assert isinstance(query.lake, DeltaLake)
        killed_after(query.lake.writer, writes, backwards=backwards)
        with contextlib.suppress(Killed):
            query.run(BATCHES[self.number])

    def finished(self, lake_dir: Path) -> None:
        """Another one repeats the batch and goes on to the end."""
        query = self.resumed(lake_dir, run=1)
        query.run(BATCHES[self.number])
        query.lake = DeltaLake(open_writer(lake_dir), first_batch=self.number + 1)
        for batch in [*BATCHES[self.number + 1 :], []]:
            query.run(batch)


def _versions(lake_dir: Path) -> dict[str, int]:
    return {name: table.version() for name, table in open_lake(lake_dir, retention_days=30).items()}


def _comparable_commits(lake_dir: Path) -> list[dict[str, Any]]:
    """All of routeCommitTable but the wall clock, what depends on which run reported liveness last, and on both."""
    skipped = {"commitTime", "livenessOffset", "chain"}
    return [{name: row[name] for name in row if name not in skipped} for row in lakes.commits(lake_dir)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> list[Before]:
    """Each batch, and last of all the end that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(folder / "lake"))
    found = []
    for number, batch in enumerate([*BATCHES, []]):
        shutil.copytree(folder / "lake", folder / str(number))
        found.append(Before(folder / str(number), number, copy.deepcopy(query.keys), query.max_ms))
        query.run(batch)
    assert lakes.last_epoch_tables(folder / "lake") == Expected(RECORDS).tables()
    return [*found, Before(folder / "lake", len(found), query.keys, query.max_ms)]


class Read(NamedTuple):
    """What a lake holds in the end, but for what another way there may change."""

    tables: lakes.Tables
    history: list[tuple[Any, ...]]
    epochs: set[tuple[int, int]]
    commits: list[dict[str, Any]]
    quarantine: list[dict[str, Any]]


def read(lake_dir: Path) -> Read:
    history = lakes.history(lake_dir)
    epochs = {(row["offset"], row["epoch"]) for row in history}
    commits, quarantine = _comparable_commits(lake_dir), lakes.quarantine(lake_dir)
    return Read(lakes.last_epoch_tables(lake_dir), ordered(history), epochs, commits, quarantine)


@pytest.fixture(scope="module")
def undisturbed(before: list[Before]) -> Read:
    return read(before[-1].lake_dir)


@lakes.read_once()
def assert_as_if_nothing_had_happened(lake_dir: Path, undisturbed: Read) -> None:
    assert read(lake_dir) == undisturbed
    lakes.check_epochs(lake_dir)
    assert_chain(lake_dir)


@pytest.mark.parametrize(
    ("dies_in", "writes", "backwards"),
    # Tables are written in no order: whichever are done, the others follow. Nearly none, and nearly all, the other way.
    [(*place, False) for place in PLACES] + [(0, 2, True), (0, 7, True), (1, 1, True), (4, 3, True)],
)
def test_a_batch_cut_off_after_any_write_is_completed(
    before: list[Before], undisturbed: Read, tmp_path: Path, dies_in: int, writes: int, backwards: bool
) -> None:
    lake_dir = tmp_path / "lake"
    before[dies_in].killed(lake_dir, writes, backwards=backwards)
    before[dies_in].finished(lake_dir)
    assert_as_if_nothing_had_happened(lake_dir, undisturbed)


LINKS = {0: range(0, 60, 12), 1: range(0, 20, 3), 4: range(0, 30, 5)}
"""By batch, a sample of the links that publish its commits."""


@pytest.mark.parametrize(("dies_in", "links"), [(batch, links) for batch, some in LINKS.items() for links in some])
def test_a_batch_cut_off_while_it_is_published_is_completed(
    before: list[Before],
    undisturbed: Read,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dies_in: int,
    links: int,
) -> None:
    lake_dir = tmp_path / "lake"
    query = before[dies_in].resumed(lake_dir)
    made, link = count(), os.link

    def dying(source: Path, target: Path) -> None:
        if lake_dir in Path(target).parents and next(made) >= links:  # not where a lake that tests share is written
            raise Killed
        link(source, target)

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(os, "link", dying)
        query.run(BATCHES[dies_in])
    before[dies_in].finished(lake_dir)
    assert_as_if_nothing_had_happened(lake_dir, undisturbed)


def test_every_step_of_a_commit_was_interrupted(before: list[Before]) -> None:
    versions = [sum(_versions(each.lake_dir).values()) for each in before]
    assert tuple(later - earlier for earlier, later in itertools.pairwise(versions))[: len(BATCHES)] == WRITES


@pytest.mark.parametrize(
    ("dies_in", "writes"),
    # What is ahead is put back table by table, each like the others: every other number of them, and none.
    [place if place[1] % 2 == 0 else pytest.param(*place, marks=pytest.mark.deep) for place in PLACES],
)
def test_the_checkpoint_is_lost_as_well(before: list[Before], tmp_path: Path, dies_in: int, writes: int) -> None:
    """Tables that ran ahead are put back, and another query goes on from the last epoch."""
    lake_dir = tmp_path / "lake"
    before[dies_in].killed(lake_dir, writes)
    tables = open_lake(lake_dir, retention_days=30)
    rewind(lake_dir, tables)
    seed = read_seed(lake_dir, FixedLog(RECORDS))
    at_epoch = lakes.commits(lake_dir)
    if at_epoch:
        assert lakes.state_tables(lake_dir) == lakes.state_tables(lake_dir, at_epoch[-1]), "nothing is ahead any more"
    again = Query(SHARDS, seed=seed.state)
    again.lake = DeltaLake(open_writer(lake_dir), query_id="q2")
    again.run([record for record in RECORDS if record.offset >= seed.next_offset])
    assert_holds_all_of_it(lake_dir)


@lakes.read_once()
def assert_holds_all_of_it(lake_dir: Path) -> None:
    expected = Expected(RECORDS)
    assert lakes.last_epoch_tables(lake_dir) == lakes.state_tables(lake_dir) == expected.tables()
    assert ordered(row for row in lakes.history(lake_dir) if row["seq"] >= 0) == expected.history()
    assert lakes.history(lake_dir) == lakes.rows(lake_dir, ROUTE_CHANGE_TABLE.name)
    assert [row["offset"] for row in lakes.quarantine(lake_dir)] == [4]
    lakes.check_epochs(lake_dir)
    assert_chain(lake_dir)


def test_rewind_twice_is_as_good_as_once(tmp_path: Path) -> None:
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(tmp_path))
    query.run(BATCHES[0])
    killed_after(query.lake.writer, 2)
    with pytest.raises(Killed):
        query.run(BATCHES[1])
    for _ in range(2):
        rewind(tmp_path, open_lake(tmp_path, retention_days=30))
        assert lakes.state_tables(tmp_path) == Expected(RECORDS[:4]).tables()


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, UnavailableError), (errno.EACCES, SetupError)])
def test_rewind_on_a_disk_that_is_full(tmp_path: Path, number: int, kind: type[Exception]) -> None:
    """The supervisor of the fold tries again. For any other error a person has to act."""

    class Table:
        def version(self) -> int:
            return 3

        def restore(self, version: int) -> None:
            raise OSError(number, os.strerror(number))

    open_lake(tmp_path, retention_days=30)
    tables: Any = {"kvConfigTable": Table()}
    with pytest.raises(kind, match="cannot be put back"):
        rewind(tmp_path, tables)


def test_rewind_of_a_lake_that_never_had_an_epoch(tmp_path: Path) -> None:
    query = Query(SHARDS)
    query.lake = DeltaLake(killed_after(open_writer(tmp_path), 3))
    with pytest.raises(Killed):
        query.run(BATCHES[0])
    rewind(tmp_path, open_lake(tmp_path, retention_days=30))
    assert lakes.state_tables(tmp_path) == Expected([]).tables()
    assert read_seed(tmp_path, FixedLog(RECORDS)).next_offset == 0

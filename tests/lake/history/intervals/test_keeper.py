# SPDX-License-Identifier: Apache-2.0
"""Intervals follow from the changes: no overlap and no gap, whatever is killed, and equal intervals if they are rebuilt."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import SHARDS, DeltaLake, drive, open_writer
from dev.support.generated_logs import batches, cuts, jumping_logs, logs, written
from dev.support.intervals import assert_kept, assert_now, kept
from dev.support.microbatches import Query
from lake.commits import last_commit
from lake.history.intervals import IntervalKeeper, rebuild
from schemas.intervals import INTERVAL_TABLES, INTERVALS
from schemas.tables import ROUTE_CHANGE_TABLE


def catch_up(lake_dir: Path, keeper: IntervalKeeper | None = None) -> IntervalKeeper:
    keeper = keeper or IntervalKeeper(lake_dir)
    commit = last_commit(lake_dir)
    if commit is not None:
        keeper.catch_up(commit.epoch, commit.versions[ROUTE_CHANGE_TABLE.name])
    return keeper


@settings(max_examples=min(12, max(3, settings().max_examples // 8)))
@given(logs | jumping_logs, cuts)
def test_kept_step_by_step_and_made_anew(records: Any, sizes: Any) -> None:
    with TemporaryDirectory() as folder:
        lake_dir = Path(folder) / "lake"
        query = Query(SHARDS)
        query.lake = DeltaLake(open_writer(lake_dir))
        keeper = IntervalKeeper(lake_dir)
        for number, batch in enumerate([*batches(records, sizes), []]):
            query.run(batch)
            if number % 3 == 1:
                catch_up(lake_dir, keeper)
            if number % 7 == 5:
                keeper = IntervalKeeper(lake_dir)
        catch_up(lake_dir, keeper)
        assert_kept(lake_dir)
        assert_now(lake_dir)
        before = [kept(lake_dir, intervals) for intervals in INTERVALS]
        rebuild(lake_dir, lambda epoch, last: None)
        assert [kept(lake_dir, intervals) for intervals in INTERVALS] == before


@pytest.mark.parametrize("timeout_ms", [-(2**63), -1, 0, 1, 2**53, 2**63 - 1])
def test_odd_timeouts_end_intervals_after_they_begin(tmp_path: Path, timeout_ms: int) -> None:
    entries = [
        (0, make.register(heartbeat_timeout_millis=timeout_ms)),
        (0, make.register("x:1", name="x")),
        (10, make.clock()),
    ]
    drive(tmp_path, [written(entries), []])
    catch_up(tmp_path)
    assert_kept(tmp_path)
    assert_now(tmp_path)
    times = [row["eventTime"] for row in lakes.history(tmp_path) if row["brokerName"] == "b"]
    live = {key[0] for key in lakes.last_epoch_tables(tmp_path)["brokerLiveTable"]}
    assert live == ({"b", "x"} if timeout_ms > 10 else {"x"})
    assert (min(times) < max(times)) is (timeout_ms <= 10)


def test_a_step_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    drive(tmp_path, [[record] for record in written([(5, make.put("n", "k", value)) for value in "abc"])])
    for _ in range(3):
        catch_up(tmp_path)
    assert_kept(tmp_path)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with intervals up to its second epoch."""
    lake_dir = tmp_path_factory.mktemp("behind") / "lake"
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(lake_dir))
    for number, batch in enumerate(BATCHES):
        query.run(batch)
        if number == 1:
            catch_up(lake_dir)
    return lake_dir


@pytest.mark.parametrize(
    "links", [pytest.param(links, marks=() if links % 6 == 0 else pytest.mark.deep) for links in range(0, 40, 3)]
)
def test_killed_at_any_link_it_goes_on(
    behind: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """Commits are published by links: before each of them the process ends, in the middle of a history."""
    shutil.copytree(behind, tmp_path, dirs_exist_ok=True)
    keeper = IntervalKeeper(tmp_path)
    assert keeper.epoch == 2
    made, link = count(), os.link

    def dying(source: Path, target: Path) -> None:
        if tmp_path in Path(target).parents and next(made) >= links:  # not where a lake that tests share is written
            raise Killed
        link(source, target)

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(os, "link", dying)
        catch_up(tmp_path, keeper)
    catch_up(tmp_path)
    assert_kept(tmp_path)


def test_a_step_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(SHARDS)
    query.lake = lake = DeltaLake(open_writer(tmp_path))
    keeper = IntervalKeeper(tmp_path)
    query.run(BATCHES[0])
    version = lake.writer.tables[ROUTE_CHANGE_TABLE.name].version
    with monkeypatch.context() as patched:
        patched.setattr("lake.history.intervals.write_deltalake", refuse)
        keeper.step(1, version)
    assert kept(tmp_path, INTERVALS[0]) == []
    keeper._next_step_s = 0.0
    keeper.step(1, version)
    assert_kept(tmp_path)
    assert_now(tmp_path)


def test_somebody_else_has_written_to_the_tables(tmp_path: Path) -> None:
    """An analyst's OPTIMIZE, or what it is like: the keeper goes on from it."""
    query = Query(SHARDS)
    query.lake = lake = DeltaLake(open_writer(tmp_path))
    keeper = IntervalKeeper(tmp_path)

    def step(number: int) -> None:
        query.run(BATCHES[number])
        keeper._next_step_s = 0.0
        keeper.step(number + 1, lake.writer.tables[ROUTE_CHANGE_TABLE.name].version)

    step(0)
    for table in INTERVAL_TABLES:
        DeltaTable(str(tmp_path / table.name)).alter.set_table_properties(
            {"delta.logRetentionDuration": "interval 9 days"}
        )
    for number in (1, 2, 3):  # it notices, it goes on from what is there, it is up to date
        step(number)
    assert keeper.epoch == 4
    assert_kept(tmp_path)
    assert_now(tmp_path)


def test_a_table_without_changes_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each start would search all changes for the first one of a KV entry."""
    monkeypatch.setattr("lake.history.intervals._LAG_EPOCHS", 2)
    drive(tmp_path, [[record] for record in written([(5, make.put("n", "k", value)) for value in "abc"])])
    catch_up(tmp_path)
    assert IntervalKeeper(tmp_path).epoch == 3
    assert_kept(tmp_path)


def test_steps_are_apart(tmp_path: Path) -> None:
    query = Query(SHARDS)
    query.lake = lake = DeltaLake(open_writer(tmp_path))
    keeper = IntervalKeeper(tmp_path)
    for number, batch in enumerate(BATCHES[:2]):
        query.run(batch)
        keeper.step(number + 1, lake.writer.tables[ROUTE_CHANGE_TABLE.name].version)
    assert keeper.epoch == 1, "the second came at once"


def test_a_table_that_is_damaged_or_of_another_lake_is_made_anew(tmp_path: Path) -> None:
    drive(tmp_path / "lake", BATCHES)
    catch_up(tmp_path / "lake")
    (tmp_path / "lake" / "kvHistory" / "_delta_log" / f"{1:020}.json").write_text("torn")
    for file in (tmp_path / "lake" / "brokerHistory").rglob("*.parquet"):
        file.unlink()
    catch_up(tmp_path / "lake")
    assert_kept(tmp_path / "lake")
    drive(tmp_path / "young", BATCHES[:1])
    for table in INTERVAL_TABLES:
        shutil.copytree(tmp_path / "lake" / table.name, tmp_path / "young" / table.name)
    catch_up(tmp_path / "young")
    assert_kept(tmp_path / "young")


def test_an_analyst_asks_when_nobody_could_write(tmp_path: Path) -> None:
    drive(tmp_path, BATCHES)
    catch_up(tmp_path)
    rows = [row for row in kept(tmp_path, INTERVALS[0]) if row["topic"] == "T" and not row["perm"] & 2]
    assert [(row["begunBy"], row["endedBy"]) for row in rows] == [
        ("WIPE_WRITE_PERM_OF_BROKER", "DELETE_TOPIC_IN_NAMESRV")
    ]
    assert json.loads(rows[0]["begunByActor"])["via"] == "remoting"


def refuse(*args: Any, **options: Any) -> None:
    raise OSError("no space left on device")


class Killed(BaseException):
    """Stands for the end of the process."""


RECORDS = written(
    [
        (0, make.register(heartbeat_timeout_millis=3_000, filter_server_list=["f:1"])),
        (0, make.register("x:1", name="x")),
        (5, make.put("n", "k")),
        (5, make.wipe("x")),
        (5, make.put("n", "k", "2")),
        (5, make.delete_topic("T")),
        (5, make.register("y:1", name="y")),
        (5, make.unregister("x:1", name="x")),
        (5, make.delete("n", "k")),
        (9_000, make.clock()),
    ]
)
BATCHES = [RECORDS[:3], RECORDS[3:4], RECORDS[4:6], RECORDS[6:8], RECORDS[8:], []]

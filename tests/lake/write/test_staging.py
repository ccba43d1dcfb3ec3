# SPDX-License-Identifier: Apache-2.0
"""delta-rs commits on a short log; the table has every commit whole, or not at all."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import drive, open_writer
from dev.support.expected import Expected
from dev.support.generated_logs import written
from dev.support.patches import in_this_thread
from lake.write import staging as module
from lake.write.staging import STAGING_FOLDER, StagedTable
from runtime.process import EXIT_FAILED, refusal
from schemas.errors import SetupError, UnavailableError


@pytest.fixture
def staged(tmp_path: Path) -> StagedTable:
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=["p"])
    return reopen(tmp_path)


def reopen(folder: Path) -> StagedTable:
    return StagedTable(DeltaTable(str(folder / "t")), folder / "t", folder / STAGING_FOLDER / "t")


def append(staged: StagedTable, number: int, partition: str = "a") -> None:
    write_deltalake(staged.delta, pa.table({"p": [partition], "n": [number]}), mode="append")


def numbers(folder: Path, version: int | None = None) -> list[int]:
    table = DeltaTable(str(folder / "t"), version=version)
    return sorted(pa.table(table.to_pyarrow_dataset().to_table())["n"].to_pylist())


def log_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_delta_log").iterdir())


def test_the_staged_log_stays_short_and_the_table_keeps_every_version(
    staged: StagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder starts again more often than a checkpoint is written, and so does delta-rs's object."""
    monkeypatch.setattr(module, "_BEGIN_AFTER_COMMITS", 5)
    opened = []
    for number in range(1, 21):
        append(staged, number, f"o'dd %2F/=ü {number % 3}")
        staged.publish()
        opened.append(staged.delta)
        if number % 10 == 0:
            staged.checkpoint()
    assert [number for number, (before, after) in enumerate(pairwise(opened), 2) if before is not after] == [
        5,
        10,
        15,
        20,
    ]
    assert [numbers(tmp_path, version) for version in range(21)] == [list(range(1, last + 1)) for last in range(21)]
    staging = tmp_path / STAGING_FOLDER / "t"
    assert log_names(staging) == [f"{20:020d}.checkpoint.parquet", f"{20:020d}.json", "_last_checkpoint"]
    assert (staged.version, staged.last_checkpoint.version) == (20, 20)
    assert staged.last_checkpoint.size >= 20


def test_published_files_are_hard_links(staged: StagedTable, tmp_path: Path) -> None:
    append(staged, 1)
    staged.publish()
    staging = tmp_path / STAGING_FOLDER / "t"
    data = [path for path in staging.rglob("*") if path.suffix == ".json" or path.parent.name.startswith("p=")]
    assert len(data) == 3
    for path in data:
        assert path.samefile(tmp_path / "t" / path.relative_to(staging))


def test_what_a_commit_removed_and_its_change_feed_leave_staging(tmp_path: Path) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"}
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    DeltaTable.create(str(tmp_path / "t"), schema, configuration=configuration)
    staged = reopen(tmp_path)
    append(staged, 1)
    staged.delta.update(updates={"n": "2"})
    staged.publish()
    assert numbers(tmp_path) == [2]
    assert numbers(tmp_path, 1) == [1]
    feed = pa.table(DeltaTable(str(tmp_path / "t")).load_cdf(starting_version=2).read_all())
    assert sorted(feed["_change_type"].to_pylist()) == ["update_postimage", "update_preimage"]
    assert len(list((tmp_path / STAGING_FOLDER / "t").glob("*.parquet"))) == 1


def test_a_commit_that_was_not_published_never_was(staged: StagedTable, tmp_path: Path) -> None:
    append(staged, 1)
    staged.publish()
    append(staged, 2)
    assert numbers(tmp_path) == [1]
    again = reopen(tmp_path)
    assert again.version == 1
    append(again, 3)
    again.publish()
    assert numbers(tmp_path) == [1, 3]
    assert len(list((tmp_path / "t" / "p=a").iterdir())) == 2


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_publishing_goes_on_after_a_failure(
    staged: StagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    append(staged, 1)
    append(staged, 2)
    calls = 0
    link = os.link

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at + 2:  # the first one finds that the partition has no folder yet
            raise OSError(28, "No space left on device")
        link(source, target)

    monkeypatch.setattr(os, "link", in_this_thread(failing, link))
    with pytest.raises(OSError, match="No space"):
        staged.publish()
    assert numbers(tmp_path) in ([], [1])
    staged.publish()
    assert numbers(tmp_path) == [1, 2]
    assert staged.version == 2


def test_somebody_elses_commit_is_not_overwritten(staged: StagedTable, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"p": ["a"], "n": [7]}), mode="append")
    append(staged, 1)
    with pytest.raises(UnavailableError, match="written by another program") as refused:
        staged.publish()
    assert refusal(refused.value) == EXIT_FAILED  # no operator has to act: EXIT_SETUP would end it for good
    assert numbers(tmp_path) == [7]
    again = reopen(tmp_path)
    append(again, 2)
    again.publish()
    assert numbers(tmp_path) == [2, 7]
    staged.stage_anew()
    append(staged, 3)
    staged.publish()
    assert numbers(tmp_path) == [2, 3, 7]


def test_maintenance_of_the_table_is_taken_over(staged: StagedTable, tmp_path: Path) -> None:
    for number in range(3):
        append(staged, number)
    staged.maintain(lambda table: table.optimize.compact())
    assert staged.version == staged.delta.version() == DeltaTable(str(tmp_path / "t")).version() == 4
    append(staged, 3)
    staged.publish()
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert len(DeltaTable(str(tmp_path / "t")).file_uris()) == len(staged.delta.file_uris()) == 2


def test_what_a_failing_maintenance_has_committed_is_taken_over(staged: StagedTable, tmp_path: Path) -> None:
    """Vacuum commits its beginning, and then a file cannot be deleted: no other process has written to the table."""

    def fail(table: DeltaTable) -> None:
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
        raise OSError("Operation not permitted")

    with pytest.raises(OSError, match="not permitted"):
        staged.maintain(fail)
    append(staged, 1)
    staged.publish()
    assert (staged.version, numbers(tmp_path)) == (2, [1])


def test_files_of_another_user_are_copied_into_staging(
    staged: StagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root leaves them after a restore or OPTIMIZE: Linux lets no other user link them."""
    for number in (1, 2):
        append(staged, number)
        staged.publish()
    staged.checkpoint()
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if tmp_path / "t" in source.parents:
            raise PermissionError(1, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", refuse)
    again = reopen(tmp_path)
    append(again, 3)
    again.publish()
    again.maintain(lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"}))
    append(again, 4)
    again.publish()
    assert numbers(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"version":3,"size":5,"parts":2}'])
def test_a_torn_pointer_to_the_last_checkpoint_does_no_harm(staged: StagedTable, tmp_path: Path, torn: bytes) -> None:
    for number in range(3):
        append(staged, number)
    staged.checkpoint()
    append(staged, 3)
    staged.publish()
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").write_bytes(torn)
    again = reopen(tmp_path)
    append(again, 4)
    again.publish()
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_what_only_vacuum_asks_for_stays_out_of_staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's checkpoint knows every file of the last weeks, the staged one those that are there."""
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("p", pa.string()), ("n", pa.int64())]))
    monkeypatch.setattr(module, "_BEGIN_AFTER_COMMITS", 10)
    staged = reopen(tmp_path)
    append(staged, 0)
    for number in range(1, 30):
        staged.delta.update(updates={"n": str(number)})
        staged.publish()
    staged.checkpoint()

    def actions(folder: Path) -> int:
        return pq.read_table(folder / "_delta_log" / f"{30:020d}.checkpoint.parquet").num_rows

    assert staged.last_checkpoint.size == actions(tmp_path / "t") >= 30
    for again in (staged, reopen(tmp_path)):
        assert actions(tmp_path / STAGING_FOLDER / "t") < 5
        staged = again
    staged.delta.update(updates={"n": "30"})
    staged.publish()
    staged.checkpoint()
    assert staged.last_checkpoint.size >= 31
    assert numbers(tmp_path) == [30]
    for version in range(1, 32):
        assert numbers(tmp_path, version) == [version - 1]


def test_a_table_whose_log_begins_with_a_checkpoint(staged: StagedTable, tmp_path: Path) -> None:
    append(staged, 1)
    staged.publish()
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    staged.checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    again = reopen(tmp_path)
    append(again, 2)
    again.publish()
    again.checkpoint()
    assert numbers(tmp_path) == [1, 2]


def test_a_missing_data_file_is_named(staged: StagedTable, tmp_path: Path) -> None:
    append(staged, 1)
    staged.publish()
    (data,) = (tmp_path / "t" / "p=a").iterdir()
    data.unlink()
    with pytest.raises(SetupError, match=data.name):
        reopen(tmp_path)


def test_a_lake_without_its_staging_folder_goes_on(tmp_path: Path) -> None:
    records = written([(0, make.register()), (1, make.put("n", "k")), (1, make.wipe("b"))])
    drive(tmp_path, [[record] for record in records])
    shutil.rmtree(tmp_path / STAGING_FOLDER)
    writer: Any = open_writer(tmp_path)
    assert writer.epoch == 3
    assert lakes.state_tables(tmp_path) == Expected(records).tables()

# SPDX-License-Identifier: Apache-2.0
"""A lake that was written by the fold is verified; one in which any value was changed is refuted, and the value named."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import drive
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import Garbage, batches, cuts, logs, written
from dev.support.tampering import flip
from eventlog.base import LogRecord
from ops.verify.report import VerifyReport
from ops.verify.verify import verify
from schemas.errors import SetupError
from schemas.tables import (
    ALL_TABLES,
    QUARANTINE_TABLE,
    ROUTE_CHANGE_TABLE,
    ROUTE_COMMIT_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

RECORDS = written(
    [
        (
            0,
            make.register(
                heartbeat_timeout_millis=3_000, filter_server_list=["f:1"], zone_name="HZ", ha_server_addr="h:1"
            ),
        ),
        (0, make.register("x:1", name="x", topic_queue_mapping_info_map={"T": make.mapping("T", "x")}, connection="7")),
        (5, make.put("n", "k")),
        (5, Garbage("b:b", b"garbage")),
        (5, make.wipe("x")),
        (5, make.delete_topic("T", "nowhere")),
        (5, make.put("n", "l", "2")),
        (5, make.heartbeat()),
        (5, make.heartbeat("x:1", name="x")),
        (5, make.register("y:1", name="y")),
        (5, make.resume("g1")),
        (5, make.unregister("y:1", name="y")),
        (5, make.register("z:1", name="z", filter_server_list=["f:2"])),
    ]
)
BATCHES = [RECORDS[:4], RECORDS[4:7], RECORDS[7:9], RECORDS[9:11], RECORDS[11:]]


@pytest.fixture(scope="module")
def written_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake_dir = tmp_path_factory.mktemp("verify") / "lake"
    drive(lake_dir, BATCHES)
    return lake_dir


@pytest.fixture
def lake_dir(written_lake: Path, tmp_path: Path) -> Path:
    shutil.copytree(written_lake, tmp_path / "lake")
    return tmp_path / "lake"


def proof(lake_dir: Path, records: list[LogRecord] = RECORDS, **expected: str) -> VerifyReport:
    return verify(lake_dir, FixedLog(records), expected={int(epoch[1:]): digest for epoch, digest in expected.items()})


def test_tables_of_a_fold_are_verified(written_lake: Path) -> None:
    report = proof(written_lake)
    assert (report.refuted, report.not_verified, report.exit_code) == ([], [], 0)
    assert report.verified == [
        "the hash chain of epochs 1 to 5 holds",
        f"the 7 state tables ({sum(map(len, lakes.state_tables(written_lake).values()))} rows) are what the "
        f"{len(lakes.history(written_lake))} changes add up to",
        "a replay of log offsets 1 to 13 from nothing gives the rows of epoch 5, heartbeats included",
    ]
    assert (report.epoch, report.digest) == (5, lakes.commits(written_lake)[-1]["chain"])


def columns() -> list[Any]:
    """Every column of every table, most of them with --deep."""
    quick = {"perm", "brokerAddrs", "clusterName", "expireTimestamp", "actor", "after", "payload", "watermark", "value"}
    return [
        pytest.param(
            table, column.name, marks=() if column.name in quick else pytest.mark.deep, id=f"{table.name}-{column.name}"
        )
        for table in ALL_TABLES
        for column in table.columns
    ]


@pytest.mark.parametrize(("table", "column"), columns())
def test_a_flipped_value_is_found_and_named(lake_dir: Path, table: Table, column: str) -> None:
    flip(lake_dir, table, column)
    report = proof(lake_dir)
    assert report.exit_code == 1
    named = [what for what in report.refuted if table.name in what]
    assert named, report.refuted
    # A row with another key, or of another epoch, is one that there should not be, and one that is missing.
    if (
        table is not ROUTE_COMMIT_TABLE
        and column not in (*table.key, "epoch")
        and (table, column) != (QUARANTINE_TABLE, "offset")
    ):
        assert any(f"column {column} " in what for what in named), named


def test_a_changed_digest_is_distinguished_from_a_changed_row(lake_dir: Path) -> None:
    flip(lake_dir, ROUTE_COMMIT_TABLE, "chain")
    (what,) = [what for what in proof(lake_dir).refuted if "chain" in what]
    assert (
        what.startswith("routeCommitTable, epoch ")
        and "column chain was changed; its other columns are correct" in what
    )


def test_a_row_of_an_epoch_is_named_where_its_changes_are_those_of_a_replay(lake_dir: Path) -> None:
    flip(lake_dir, ROUTE_COMMIT_TABLE, "queryId")
    assert any(
        what.startswith("routeCommitTable, epoch ") and "this row was changed" in what
        for what in proof(lake_dir).refuted
    )


def test_given_digests_are_compared_with_the_hash_chain(lake_dir: Path) -> None:
    third = lakes.commits(lake_dir)[2]["chain"]
    assert proof(lake_dir, e3=third).verified[1] == "the digest of epoch 3 equals the given digest"
    assert proof(lake_dir, e3="0" * 64).refuted == [
        f"epoch 3 has the digest {third}, but the given digest is {'0' * 64}"
    ]
    assert proof(lake_dir, e9="0" * 64).refuted == ["there is no epoch 9 of the given digest"]


@pytest.mark.parametrize("table", [TOPIC_QUEUE_TABLE, ROUTE_CHANGE_TABLE, QUARANTINE_TABLE, ROUTE_COMMIT_TABLE])
def test_a_deleted_row_is_found(lake_dir: Path, table: Table) -> None:
    if table is TOPIC_QUEUE_TABLE:
        for file in (lake_dir / table.name).rglob("*.parquet"):
            file.unlink()
        with pytest.raises(SetupError, match="cannot be read"):
            proof(lake_dir)
        return
    column = "epoch" if table is not QUARANTINE_TABLE else "offset"
    DeltaTable(str(lake_dir / table.name)).delete(f'"{column}" <= 4')
    report = proof(lake_dir)
    assert report.exit_code == 1
    assert any(table.name in what for what in report.refuted), report.refuted


def test_a_log_that_was_trimmed_is_replayed_from_an_epoch(lake_dir: Path) -> None:
    report = proof(lake_dir, RECORDS[7:])
    assert report.verified[-1] == (
        "a replay of log offsets 8 to 13 from epoch 2 gives the rows of epoch 5, heartbeats included"
    )
    flip(lake_dir, TOPIC_QUEUE_TABLE, "perm")
    assert proof(lake_dir, RECORDS[7:]).exit_code == 1


class TrimmedMeanwhile(FixedLog):
    """The fold deletes records after a verification has looked where the log begins."""

    def __init__(self, trims: list[int]) -> None:
        super().__init__(RECORDS)
        self.trims_left = trims

    def read(self, start_offset: int, max_records: int = 3, max_bytes: int = 0) -> list[LogRecord]:
        if start_offset < 12 and self.trims_left:  # a read of the replay
            self.trim(self.trims_left.pop(0), 2**60)
        return super().read(start_offset, max_records, max_bytes)


def test_a_log_that_is_trimmed_meanwhile_is_replayed_from_a_later_epoch(lake_dir: Path) -> None:
    report = verify(lake_dir, TrimmedMeanwhile([7]))
    assert (report.refuted, report.not_verified) == ([], [])
    assert report.verified[-1] == (
        "a replay of log offsets 8 to 13 from epoch 2 gives the rows of epoch 5, heartbeats included"
    )


def test_a_log_that_is_trimmed_again_and_again_is_reported_as_not_proved(lake_dir: Path) -> None:
    report = verify(lake_dir, TrimmedMeanwhile([3, 9]))
    assert (report.refuted, report.exit_code) == ([], 0)
    (what,) = report.not_verified
    assert "deleted records of the event log meanwhile" in what


def test_a_replay_that_begins_while_nobody_expires(tmp_path: Path) -> None:
    """What is overdue at its first epoch stays until the pause ends, as in the fold."""
    records = written(
        [
            (0, make.register(heartbeat_timeout_millis=3_000)),
            (5, make.preserve()),
            (5, make.put("n", "k")),
            (60_000, make.put("n", "l")),
            (5, make.wipe()),
            (60_000, make.put("n", "m")),
        ]
    )
    drive(tmp_path / "lake", [records[:3], records[3:]])
    report = proof(tmp_path / "lake", records[3:])
    assert report.refuted == []
    assert report.verified[-1].startswith("a replay of log offsets 4 to 6 from epoch 1 gives the rows of epoch ")


@pytest.mark.parametrize(
    "records", [RECORDS[12:], RECORDS[:12], []], ids=["begins too late", "ends too early", "empty"]
)
def test_a_log_that_does_not_cover_the_epochs_is_reported_as_not_proved(
    lake_dir: Path, records: list[LogRecord]
) -> None:
    report = proof(lake_dir, records)
    assert report.exit_code == 0
    (what,) = report.not_verified
    assert what.startswith("that a replay gives the same rows: ")


def test_without_an_event_log_the_replay_is_reported_as_not_proved(lake_dir: Path) -> None:
    report = verify(lake_dir, None)
    assert (report.exit_code, report.not_verified) == (0, ["that a replay gives the same rows: there is no event log"])


def test_an_empty_lake(tmp_path: Path) -> None:
    drive(tmp_path / "lake", [])
    report = proof(tmp_path / "lake")
    assert (report.exit_code, report.verified) == (2, [])


@settings(max_examples=min(8, max(3, settings().max_examples // 8)))
@given(logs, cuts, st.sampled_from((0.0, 3600.0)))
def test_any_history_is_proved(records: list[LogRecord], cut: Any, liveness_interval_s: float) -> None:
    with TemporaryDirectory() as folder:
        lake_dir = Path(folder) / "lake"
        drive(lake_dir, [*batches(records, cut), []], liveness_interval_s=liveness_interval_s)
        if lakes.commits(lake_dir):
            report = proof(lake_dir, records)
            assert (report.refuted, len(report.verified)) == ([], 3), report

# SPDX-License-Identifier: Apache-2.0
"""A process that cannot start says so in one sentence, changes nothing, and ends with exit code 2.

`tests/cli/test_preflight.py` has the refusals before the lake and the event log are opened.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from dev.peers.java import free_port
from dev.support import events as make
from dev.support.command import process
from dev.support.drive import drive
from dev.support.generated_logs import written
from dev.support.sampled import sampled
from lake.delta.ddl import open_lake
from lake.write.synced import sync_lake

_TORN = b'{"commitInfo":{"time'
_DAMAGES = (b"", _TORN, None)
"""Contents of a commit's file; None: it is missing."""
_ORDINARY = (("gateway", None), ("fold", _TORN))


def start(command: str, data_dir: Path) -> tuple[int, str]:
    """Exit code and what it printed."""
    addresses = [f"--{name}=127.0.0.1:{free_port()}" for name in ("http", "remoting")] if command == "gateway" else []
    done = process(command, "--data-dir", data_dir, *addresses)
    return done.returncode, done.stdout + done.stderr


def refused(result: tuple[int, str], *words: str) -> None:
    code, printed = result
    assert code == 2, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("routelake: ")]
    for word in words:
        assert word in line
    assert "Traceback" not in printed


@pytest.mark.parametrize("command", ["gateway", "fold"])
def test_a_lake_of_a_newer_format(tmp_path: Path, command: str) -> None:
    lake_dir = tmp_path / "data" / "lake"
    open_lake(lake_dir, retention_days=30)
    (lake_dir / "lake.json").write_text('{"format": 999}')
    refused(start(command, tmp_path / "data"), "999", "pgrade")


@pytest.mark.parametrize(("command", "left"), sampled(product(("gateway", "fold"), _DAMAGES), _ORDINARY))
def test_a_damaged_table(tmp_path: Path, command: str, left: bytes | None) -> None:
    """An empty NameServer would tell every client that its topics are gone."""
    lake_dir = tmp_path / "data" / "lake"
    made = drive(lake_dir, [[record] for record in written([(0, make.register()), (0, make.put("n", "k"))])])
    sync_lake(lake_dir, {name: table.version for name, table in made.writer.tables.items()})
    log = lake_dir / "routeCommitTable" / "_delta_log"
    if left is None:
        damaged = log / f"{1:020d}.json"
        damaged.unlink()
    else:
        damaged = log / f"{2:020d}.json"
        damaged.unlink()  # it has another name, in the staging folder
        damaged.write_bytes(left)
    refused(start(command, tmp_path / "data"), str(damaged), "estore the lake from a backup")


@pytest.mark.parametrize("left", [pytest.param(b"", marks=pytest.mark.deep), _TORN])
def test_a_table_that_a_power_cut_has_torn(tmp_path: Path, left: bytes) -> None:
    """The fold's start repairs it, so the gateway is to be started again."""
    lake_dir = tmp_path / "data" / "lake"
    drive(lake_dir, [[record] for record in written([(0, make.register()), (0, make.put("n", "k"))])])
    damaged = lake_dir / "routeCommitTable" / "_delta_log" / f"{2:020d}.json"
    damaged.unlink()
    damaged.write_bytes(left)
    code, printed = start("gateway", tmp_path / "data")
    assert code == 1, printed
    assert str(damaged) in printed and "cannot be read yet" in printed


def test_data_that_cannot_be_read(tmp_path: Path) -> None:
    """It may pass, as where the lake is mounted, so the exit code is 1."""
    lake_dir = tmp_path / "data" / "lake"
    drive(lake_dir, [written([(0, make.register())])])
    for file in (lake_dir / "routeCommitTable").glob("*.parquet"):
        file.unlink()
    code, printed = start("gateway", tmp_path / "data")
    assert code == 1, printed
    assert "cannot be read" in printed
    assert "Traceback" not in printed


def test_a_log_that_ends_before_the_tables_do(tmp_path: Path) -> None:
    """Its offsets would start again, and a write would count as folded before the fold has seen it."""
    lake_dir = tmp_path / "data" / "lake"
    lake_dir.mkdir(parents=True)
    drive(lake_dir, [written([(0, make.register()), (0, make.put("n", "k"))])])
    refused(start("gateway", tmp_path / "data"), "ends at offset", "Restore", "new data directory")

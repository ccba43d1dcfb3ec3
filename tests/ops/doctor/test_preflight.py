# SPDX-License-Identifier: Apache-2.0
"""`doctor --preflight`: the judgement of a machine and a data directory before an upgrade."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dev.release.golden import make_data
from dev.support.command import command
from lake.delta.ddl import LAKE_FILE
from nameserver.state_machine import version
from ops.doctor import preflight


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "data"
    make_data(folder)
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def checks(data: Path, code: int = 0) -> dict[str, tuple[str, str]]:
    done = command("doctor", data, "--preflight", "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    return {one["subject"]: (one["level"], one["text"]) for one in json.loads(done.stdout)["checks"]}


def test_a_data_directory_of_this_release(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*") if path.suffix != ".db-shm"}
    found = checks(data)
    assert {"Python", "Java", "memory", "open files", "disk", "data directory", "way back"} <= found.keys()
    assert found["data directory"][0] == found["way back"][0] == "ok"
    after = {path: path.stat().st_mtime_ns for path in before if path.exists()}
    assert {path for path in before if path.is_file() and before[path] != after.get(path)} == set()


def test_text_has_a_line_for_each_check(data: Path) -> None:
    done = command("doctor", data, "--preflight")
    assert done.returncode == 0
    assert all(line.startswith(("ok ", "note ")) for line in done.stdout.splitlines())


def test_an_older_level_of_events_is_told_before_it_is_raised(data: Path) -> None:
    marker = data / "lake" / LAKE_FILE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"events": 1}))
    level, text = checks(data)["way back"]
    assert level == "note" and "older releases refuse this data directory" in text


def test_new_rules_are_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "STATE_MACHINE_VERSION", version.STATE_MACHINE_VERSION + 1)
    level, text = checks(data)["gateways"]
    assert level == "note" and "Upgrade the fold first" in text


def test_what_doctor_finds_comes_first(data: Path) -> None:
    next((data / "lake" / "topicQueueTable").rglob("*.parquet")).unlink()
    shutil.rmtree(data / "lake" / "routeCommitTable")
    assert checks(data, 1)["data directory"][0] == "WRONG"


def test_a_newer_lake_is_refused(data: Path) -> None:
    marker = data / "lake" / LAKE_FILE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 99}))
    assert checks(data, 1)["data directory"][0] == "WRONG"


def test_it_goes_with_neither_repair_nor_a_lake(data: Path) -> None:
    done = command("doctor", data, "--preflight", "--repair")
    assert done.returncode == 2 and "without --repair" in done.stderr

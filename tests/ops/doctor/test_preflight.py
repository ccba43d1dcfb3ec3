# SPDX-License-Identifier: Apache-2.0
"""`doctor --preflight`: the judgement of a machine and a data directory before an upgrade."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from dev.release.golden import make_data
from dev.support.command import command
from lake.checkpoint import CHECKPOINT_FORMAT, MARKER_FILE, Marker
from lake.delta.ddl import LAKE_FILE
from nameserver.state_machine import version
from ops.doctor import preflight
from runtime.version import PROGRAM
from schemas.events import EVENT_LEVEL


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


def test_a_newer_level_of_events_is_refused(data: Path) -> None:
    marker = data / "lake" / LAKE_FILE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"events": EVENT_LEVEL + 1}))
    level, text = checks(data, 1)["data directory"]
    assert level == "WRONG" and f"events of level {EVENT_LEVEL + 1}" in text and f"`{PROGRAM} restore BACKUP`" in text


def test_a_newer_state_machine_version_is_reported(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "STATE_MACHINE_VERSION", version.STATE_MACHINE_VERSION + 1)
    found = checks(data)
    level, text = found["gateways"]
    assert level == "note" and "Change the release of the fold first" in text
    assert found["way back"][0] == "ok"


@pytest.mark.parametrize(
    ("change", "code", "subject", "expected"),
    [
        (-1, 0, "way back", ("note", "Before you start an older release again, delete")),
        (0, 0, "way back", ("ok", "no format changes")),
        (1, 1, "checkpoint", ("WRONG", "Delete this folder before you start the fold")),
    ],
)
def test_the_format_of_the_checkpoint(
    data: Path, change: int, code: int, subject: str, expected: tuple[str, str]
) -> None:
    marker = data / "checkpoints" / "fold" / MARKER_FILE
    marker.parent.mkdir(parents=True)
    marker.write_bytes(msgspec.json.encode(Marker(CHECKPOINT_FORMAT + change, 2)))
    level, text = checks(data, code)[subject]
    assert level == expected[0] and expected[1] in text


def test_what_doctor_finds_comes_first(data: Path) -> None:
    next((data / "lake" / "topicQueueTable").rglob("*.parquet")).unlink()
    shutil.rmtree(data / "lake" / "routeCommitTable")
    assert checks(data, 1)["data directory"][0] == "WRONG"


def test_a_newer_lake_is_refused(data: Path) -> None:
    marker = data / "lake" / LAKE_FILE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 99}))
    level, text = checks(data, 1)["data directory"]
    assert level == "WRONG" and "has format 99" in text and f"`{PROGRAM} restore BACKUP`" in text


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("format_version", "99", "this routelake writes format 1"),
        ("moved_to", "kafka://k:9092/t.from-1", "was moved to"),
    ],
)
def test_an_event_log_that_this_release_refuses(data: Path, key: str, value: str, expected: str) -> None:
    with closing(sqlite3.connect(data / "events.db")) as log, log:
        log.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
    level, text = checks(data, 1)["event log"]
    assert level == "WRONG" and expected in text


def test_folders_that_a_running_fold_deletes_meanwhile_are_left_out(data: Path) -> None:
    for number in range(200):
        (data / "scratch" / str(number) / "inner").mkdir(parents=True)
    size_bytes = preflight._bytes_of(data)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            for folder in (data / "scratch").iterdir():
                shutil.rmtree(folder)
            for number in range(200):
                (data / "scratch" / str(number) / "inner").mkdir(parents=True)

    fold = threading.Thread(target=work)
    fold.start()
    try:
        assert {preflight._bytes_of(data) for _ in range(30)} == {size_bytes}
    finally:
        ended.set()
        fold.join()


def test_before_the_first_start_the_machine_is_checked(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        found = checks(folder)
        assert {"Python", "Java", "memory", "open files", "disk", "data directory"} == found.keys()
        level, text = found["data directory"]
        assert level == "note" and f"no lake and no event log in {folder}. The first start creates them" in text
    assert list(tmp_path.iterdir()) == []


def test_preflight_cannot_be_combined_with_repair_or_lake(data: Path) -> None:
    done = command("doctor", data, "--preflight", "--repair")
    assert done.returncode == 2 and "cannot be used with --repair" in done.stderr

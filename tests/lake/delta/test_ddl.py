# SPDX-License-Identifier: Apache-2.0
"""A lake that cannot be used is refused with a sentence that helps; one that is ours is opened, or completed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from dev.peers.routelake import ROOT
from dev.support import events as make
from dev.support import lakes
from dev.support.drive import drive, open_writer
from dev.support.generated_logs import written
from lake.delta import ddl
from lake.delta.ddl import check_format, lock_lake, open_lake
from lake.write.writer import rewind
from schemas.errors import SetupError, UnavailableError
from schemas.events import EVENT_LEVEL
from schemas.tables import ALL_TABLES, LAKE_FORMAT_VERSION, Table


def opened(lake_dir: Path) -> None:
    open_lake(lake_dir, retention_days=30)


def refused(lake_dir: Path, *words: str, action: Callable[[Path], object] = opened) -> None:
    with pytest.raises(SetupError) as caught:
        action(lake_dir)
    message = str(caught.value)
    assert all(word in message for word in words), message


def test_a_new_lake_has_every_table_and_then_its_format(tmp_path: Path) -> None:
    opened(tmp_path / "deep" / "lake")
    assert {path.name for path in (tmp_path / "deep" / "lake").iterdir()} == {
        "lake.json",
        *(table.name for table in ALL_TABLES),
    }
    assert json.loads((tmp_path / "deep" / "lake" / "lake.json").read_text()) == {
        "format": LAKE_FORMAT_VERSION,
        "events": EVENT_LEVEL,
    }


def test_opening_it_again_changes_nothing(tmp_path: Path) -> None:
    opened(tmp_path)
    opened(tmp_path)
    assert all(DeltaTable(str(tmp_path / table.name)).version() == 0 for table in ALL_TABLES)


def test_another_retention_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """Vacuum refuses to keep less than the table's own property asks for."""
    opened(tmp_path)
    for days in (7, 7):
        tables = open_lake(tmp_path, retention_days=days)
    for table in tables.values():
        kept = {name: value for name, value in table.metadata().configuration.items() if "Duration" in name}
        assert set(kept.values()) == {"interval 7 days"}
        assert len(kept) == 2
        table.vacuum(7 * 24, full=True)
        assert table.version() == 1, "and only where it is another one"


@pytest.mark.parametrize("left", [(), ("_commit_5f.json.tmp",)])
def test_a_table_whose_making_was_cut_off_is_made(tmp_path: Path, left: tuple[str, ...]) -> None:
    """As a full disk leaves it, or SIGKILL."""
    log = tmp_path / ALL_TABLES[0].name / "_delta_log"
    log.mkdir(parents=True)
    for name in left:
        (log / name).write_text("{")
    opened(tmp_path)
    assert DeltaTable(str(log.parent)).version() == 0


def test_a_foreign_table_is_refused_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ALL_TABLES[0].name
    DeltaTable.create(str(path), pa.schema([("n", pa.int64())]))
    refused(tmp_path, "It was changed, or is not a routelake table", str(path))
    assert DeltaTable(str(path)).version() == 0


def test_what_delta_rs_says_is_one_line(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ALL_TABLES[0].name / "_delta_log" / f"{0:020d}.json").write_text("not json")
    with pytest.raises(SetupError) as caught:
        opened(tmp_path)
    assert "\n" not in str(caught.value)
    assert "backup" in str(caught.value)


def test_a_lake_whose_making_was_cut_off_is_completed(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "lake.json").unlink()
    shutil.rmtree(tmp_path / ALL_TABLES[-1].name)
    opened(tmp_path)
    assert (tmp_path / "lake.json").exists()
    assert lakes.commits(tmp_path) == []


@pytest.mark.parametrize("name", ["sp ace", "ünï-☃", "a#b?c", "it's", "100%"])
def test_odd_directories(tmp_path: Path, name: str) -> None:
    drive(tmp_path / name, [written([(0, make.register())])])
    assert len(lakes.commits(tmp_path / name)) == 1


def test_a_directory_that_delta_rs_cannot_find_again(tmp_path: Path) -> None:
    """It takes %20 in a path for a space."""
    refused(tmp_path / "a%20b", "%20", "--data-dir")


# --- formats ---


def test_a_newer_format(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "lake.json").write_text(json.dumps({"format": LAKE_FORMAT_VERSION + 1}))
    refused(tmp_path, f"format {LAKE_FORMAT_VERSION + 1}", "Upgrade routelake")
    refused(tmp_path, "Upgrade routelake", action=check_format)


def test_an_older_format(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "lake.json").write_text(json.dumps({"format": LAKE_FORMAT_VERSION - 1}))
    for action in (opened, check_format):
        refused(tmp_path, f"format {LAKE_FORMAT_VERSION - 1}", "move the folder away", "event log", action=action)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"format":"new"}', '{"format":null}'])
def test_a_format_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    opened(tmp_path)
    (tmp_path / "lake.json").write_text(text)
    refused(tmp_path)


# --- something else stands there ---


def test_a_foreign_delta_table(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "topicQueueTable"), pa.table({"a": [1]}))
    refused(tmp_path, "topicQueueTable", "columns ['a']", "Restore it from a backup")


def test_a_missing_column(tmp_path: Path) -> None:
    spec = ALL_TABLES[0]
    fields = [pa.field(column.name, pa.string()) for column in spec.columns[:-1]]
    write_deltalake(str(tmp_path / spec.name), pa.schema(fields).empty_table())
    refused(tmp_path, spec.name, "expected", spec.columns[-1].name)


def test_a_column_of_another_type(tmp_path: Path) -> None:
    spec = ALL_TABLES[0]
    fields = [pa.field(column.name, pa.string()) for column in spec.columns]
    write_deltalake(str(tmp_path / spec.name), pa.schema(fields).empty_table())
    refused(tmp_path, spec.name, "readQueueNums")


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "kvConfigTable").mkdir()
    (tmp_path / "kvConfigTable" / "holiday.jpg").write_bytes(b"")
    refused(tmp_path, "kvConfigTable", "not a Delta table", "--data-dir")


def test_a_file_in_a_tables_place(tmp_path: Path) -> None:
    (tmp_path / "kvConfigTable").write_text("")
    refused(tmp_path, "kvConfigTable")


def test_a_file_in_the_lakes_place(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    refused(tmp_path / "lake", "lake")
    refused(tmp_path / "lake", "lake", "--data-dir", action=lock_lake)


def test_a_damaged_log(tmp_path: Path) -> None:
    drive(tmp_path, [written([(0, make.register())])])
    for path in (tmp_path / "kvConfigTable" / "_delta_log").glob("*.json"):
        path.write_text("not json")
    refused(tmp_path, "kvConfigTable")


def test_versions_that_an_epoch_names_but_nobody_has(tmp_path: Path) -> None:
    """A table restored from an older backup than routeCommitTable."""
    drive(tmp_path, [[record] for record in written([(0, make.register()), (0, make.put("n", "k"))])])
    shutil.rmtree(tmp_path / "kvConfigTable")
    tables = open_lake(tmp_path, retention_days=30)
    with pytest.raises(SetupError, match="kvConfigTable.*from one backup"):
        rewind(tmp_path, tables)
    refused(tmp_path, "kvConfigTable", "from one backup", action=open_writer)


def test_a_disk_that_is_full_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have room by then: no person has to act."""

    def fail(path: Path, table: Table, retention_days: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lake.delta.ddl._create", fail)
    with pytest.raises(UnavailableError, match="free some space"):
        open_lake(tmp_path, retention_days=30)


# --- held by another, or not ours to write ---


def test_a_lake_held_by_another_process(tmp_path: Path) -> None:
    script = "import sys, pathlib; from lake.delta.ddl import lock_lake\n"
    script += "lock = lock_lake(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        refused(tmp_path, "in use by a running fold", f"process {holder.pid}", "--data-dir", action=lock_lake)
        holder.stdin.close()
        holder.wait(20)
        lock_lake(tmp_path).close()
    finally:
        holder.kill()
        holder.wait()
        for stream in (holder.stdin, holder.stdout):
            if stream is not None:
                stream.close()


def test_the_lock_is_for_whoever_holds_it_now(tmp_path: Path) -> None:
    with lock_lake(tmp_path):
        refused(tmp_path, f"process {os.getpid()}", action=lock_lake)
    lock_lake(tmp_path).close()


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A directory that others can enter: pytest's own are closed to them whenever another pytest begins."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("made", [True, False])
def test_a_directory_that_is_read_only(anybodys: Path, made: bool) -> None:
    """Seen by a user who may read it and no more. Reading what is there needs no right to write."""
    if made:
        open_writer(anybodys)
    script = """
        import os, pathlib, sys
        from lake.delta.ddl import lock_lake, open_lake
        from lake.write.writer import LakeWriter
        from schemas.errors import SetupError
        os.setgid(65534); os.setuid(65534)
        lake = pathlib.Path(sys.argv[1])
        for action in (lock_lake, lambda lake: lock_lake(lake / "sub"), lambda lake: open_lake(lake, retention_days=30)):
            try:
                action(lake)
            except SetupError as error:
                print("refused:", error)
        """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(anybodys)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    refusals = run.stdout.splitlines()
    assert len(refusals) == (2 if made else 3)
    for line in refusals:
        assert line.startswith("refused:") and str(anybodys) in line and "--data-dir" in line


def test_a_lake_whose_log_may_hold_newer_events(tmp_path: Path) -> None:
    """docs/adr/0019: an older fold would put them into quarantine, and go on. Who only reads tables may."""
    opened(tmp_path)
    marker = tmp_path / "lake.json"
    before = marker.read_bytes()
    assert json.loads(before)["events"] == EVENT_LEVEL
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(ddl, "EVENT_LEVEL", EVENT_LEVEL + 1)
        opened(tmp_path)
        assert json.loads(marker.read_bytes()) == {**json.loads(before), "events": EVENT_LEVEL + 1}
        opened(tmp_path)
    refused(
        tmp_path,
        f"events of level {EVENT_LEVEL + 1}, and this version reads only up to {EVENT_LEVEL}",
        "Upgrade routelake first",
    )
    check_format(tmp_path)

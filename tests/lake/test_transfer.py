# SPDX-License-Identifier: Apache-2.0
"""A whole lake out of a store and into one: with its past, and a fold goes on there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from dev.support import events as make
from dev.support import lakes
from dev.support.command import command, process
from dev.support.fold import Fold, FoldThread
from dev.support.intervals import assert_kept, assert_now
from dev.support.s3 import fake_s3
from eventlog.open import open_log
from lake import transfer
from lake.store import Store, StoreError, open_store
from lake.transfer import put
from schemas.errors import SetupError
from schemas.events import AnyEvent, EventEncoder, routing_key
from schemas.intervals import INTERVAL_TABLES

_encode = EventEncoder().encode
URL = "s3://lake/whole"
USER = 65534
"""Owner of the data directory, if root runs the command."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with a log and tables at `URL` in two epochs, with checkpoints and intervals."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch, fake_s3(patch):
        log = open_log(f"sqlite://{folder}/events.db")

        def tell(*events: AnyEvent) -> None:
            log.append([(routing_key(event), _encode(event)) for event in events])

        tell(make.register(), make.register("x:1", name="x"))
        fold = Fold(log, folder / "copy", store=open_store(URL), intervals=True)
        fold.fold()
        for table in fold.writer.tables.values():
            table.checkpoint()
        tell(make.wipe("x"), make.put("n", "k"))
        fold.fold()
        log.close()
        yield folder


def done(*arguments: object, code: int = 0) -> CompletedProcess[str]:
    run = command(*arguments)
    assert run.returncode == code, run
    return run


def test_a_lake_is_copied_with_its_history_to_another_store(data_dir: Path, tmp_path: Path) -> None:
    got = tmp_path / "got"
    done("lake", "get", URL, got)
    lakes.check_epochs(got / "lake")
    first = lakes.commits(got / "lake")[0]
    assert set(lakes.state_tables(got / "lake", first)["brokerAddrTable"]) == {("b",), ("x",)}
    assert "not empty" in done("lake", "get", URL, got, code=2).stderr

    done("lake", "put", got, "s3://lake/other")
    assert "already contains a lake" in done("lake", "put", got, "s3://lake/other", code=2).stderr
    log = open_log(f"sqlite://{data_dir}/events.db")
    there = Fold(log, tmp_path / "copy", store=open_store("s3://lake/other"), intervals=True)
    assert there.writer.epoch == 2
    assert lakes.last_epoch_tables(tmp_path / "copy") == lakes.last_epoch_tables(got / "lake")
    log.close()


def test_a_copied_lake_can_be_verified_and_backed_up(data_dir: Path, tmp_path: Path) -> None:
    verified = done("history", "verify", "--lake", URL, "--data-dir", data_dir)
    assert "not verified" not in verified.stdout and "chain" in verified.stdout, verified
    done("backup", tmp_path / "backup", "--lake", URL, "--data-dir", data_dir)
    done("restore", tmp_path / "backup", "--data-dir", tmp_path / "restored")
    lakes.check_epochs(tmp_path / "restored" / "lake")
    log = open_log(f"sqlite://{tmp_path}/restored/events.db")
    with FoldThread(log, tmp_path / "restored" / "lake") as fold:
        assert fold.writer.epoch == 2
    log.close()


def test_a_backup_needs_no_data_directory(data_dir: Path, tmp_path: Path) -> None:
    log = f"sqlite://{data_dir}/events.db"
    done("backup", tmp_path / "backup", "--lake", URL, "--event-log", log, "--data-dir", tmp_path / "none")
    done("restore", tmp_path / "backup", "--data-dir", tmp_path / "restored", "--dry-run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_backs_up_a_copied_lake_for_the_owner_of_the_data_directory(data_dir: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="routelake-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        data = Path(shutil.copytree(data_dir, place / "data"))
        for path in (data, *data.rglob("*")):
            os.chown(path, USER, USER)
        run = process("backup", place / "backup", "--lake", URL, "--data-dir", data)
        assert run.returncode == 0, run
        assert {path.stat().st_uid for path in (place / "backup").rglob("*")} == {USER}


def test_a_copied_lake_can_be_queried_and_examined(data_dir: Path, tmp_path: Path) -> None:
    asked = done("sql", "select brokerName from brokerAddrTable order by 1", "--lake", URL, "--csv")
    assert asked.stdout.split() == ["brokerName", "b", "x"]
    reported = done("history", "report", "peers", "--lake", URL, "--json")
    assert json.loads(reported.stdout)
    changed = done("history", "changes", "--lake", URL, "--topic", "T", "--json")
    assert json.loads(changed.stdout.splitlines()[0])["topic"] == "T", changed
    both = done("history", "diff", "--from", "1", "--lake", URL, "--data-dir", data_dir, code=2)
    assert "Choose one" in both.stderr
    found = done("doctor", data_dir, "--lake", URL)
    assert found.stdout.startswith(f"{URL}: epoch 2,") and "nothing is wrong" in found.stdout
    assert "routelake-lake-" not in found.stdout
    refused = done("doctor", data_dir, "--lake", URL, "--repair", code=2).stderr
    assert f"lake get {URL} DIR" in refused and "lake put" in refused
    assert "Use a URL" in done("doctor", data_dir, "--lake", tmp_path, code=2).stderr


def test_damage_of_a_copied_lake_names_the_way_of_its_repair(data_dir: Path, tmp_path: Path) -> None:
    done("lake", "get", URL, tmp_path)
    for file in (tmp_path / "lake" / "brokerAddrTable").glob("*.parquet"):
        file.unlink()
    url = "s3://lake/damaged"
    done("lake", "put", tmp_path, url)
    found = done("doctor", data_dir, "--lake", url, code=1).stdout
    assert f"WRONG: file-lost: {url}/brokerAddrTable/" in found
    assert f"lake get {url} DIR" in found and f"doctor {url}" not in found


def test_intervals_of_a_copied_lake_can_be_rebuilt(data_dir: Path, tmp_path: Path) -> None:
    assert "there is no lake" in done("history", "rebuild", "--lake", "s3://lake/none", code=2).stderr
    first = tmp_path / "first"
    done("lake", "get", URL, first)
    url = "s3://lake/anew"
    done("lake", "put", first, url)
    store = open_store(url)
    store.delete([found.path for found in store.listed(INTERVAL_TABLES[0].name)])
    done("history", "rebuild", "--lake", url)
    assert json.loads(store.get("fold.lease"))["released"]
    then = tmp_path / "then"
    done("lake", "get", url, then)
    assert_kept(then / "lake")
    assert_now(then / "lake")


def test_an_interrupted_download_is_no_lake(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: Store, lake_dir: Path, name: str) -> None:
        if name != "routeCommitTable":
            raise StoreError("the store is away")
        get_table(store, lake_dir, name)

    get_table = transfer._get_table
    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(transfer, "_get_table", broken)
        transfer.get(open_store(URL), tmp_path / "lake")
    assert (tmp_path / "lake" / "routeCommitTable").is_dir()
    assert "there is no lake in" in done("lake", "put", tmp_path, "s3://lake/half", code=2).stderr
    assert "contains no lake" in done("backup", tmp_path / "backup", "--data-dir", tmp_path, code=2).stderr
    assert "If a download was interrupted" in done("lake", "get", URL, tmp_path, code=2).stderr


def test_a_folder_without_a_lake_is_refused(tmp_path: Path, data_dir: Path) -> None:
    assert "there is no lake at s3://lake/none" in done("lake", "get", "s3://lake/none", tmp_path / "a", code=2).stderr
    assert "there is no lake in" in done("lake", "put", tmp_path / "a", "s3://lake/none", code=2).stderr
    with pytest.raises(SetupError, match="there is no lake"):
        put(tmp_path, open_store("s3://lake/none"))

# SPDX-License-Identifier: Apache-2.0
"""Machines with a /tmp where nothing may be executed: a hardened host, or a container with a tmpfs there.

Spark unpacks RocksDB's library and loads it, 17 MB at each start, which would stay there, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.http_api import broker
from dev.support.namespaces import possible_kinds, unshare

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

REMOUNTED = 'mount --bind {tmp} {tmp} && {also} mount -o remount,bind,noexec {tmp} && exec "$@"'


def through(data_dir: Path | None) -> tuple[str, ...]:
    """A command that runs one where nothing may be executed in the place for temporary files, but in this folder."""
    tmp = Path(tempfile.gettempdir()).resolve()
    if data_dir is not None and not data_dir.resolve().is_relative_to(tmp):
        pytest.skip("pytest's folder is not where temporary files are")
    also = f"mount --bind '{data_dir}' '{data_dir}' &&" if data_dir is not None else ""
    return (*unshare(["mount"]), "sh", "-c", REMOUNTED.format(tmp=f"'{tmp}'", also=also), "sh")


@pytest.fixture(autouse=True)
def _mounts() -> None:
    if not possible_kinds():
        pytest.skip("no mounts of its own can be had here")


def test_rocksdb_is_loaded_from_the_data_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "a folder" / "data"
    data_dir.mkdir(parents=True)
    with Routelake(data_dir, through=through(data_dir)) as server:
        written = server.send("POST", "/v1/brokers/register", broker())
        wait_until(lambda: server.get("/readyz")["epoch"] > 0, 60, f"an epoch with {written}")
    assert list((data_dir / "scratch" / "tmp").glob("librocksdbjni*"))


def test_without_an_executable_directory_the_fold_names_the_problem(tmp_path: Path) -> None:
    fold = Routelake(tmp_path / "data", "fold", through=through(None))
    fold.start(wait_ready_s=None)
    assert fold.process is not None
    assert fold.process.wait(60) == 2
    (line,) = [line for line in fold.log_tail().splitlines() if line.startswith("routelake: ")]
    assert "noexec" in line
    assert "TMPDIR" in line

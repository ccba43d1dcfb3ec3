# SPDX-License-Identifier: Apache-2.0
"""What a process takes from the machine and hands on: modes of files, the limit of open files, no tokens."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT, Routelake
from dev.support.command import told
from runtime.machine import guard_data
from runtime.secrets import without_secrets
from schemas.errors import SetupError, UnavailableError
from tests.runtime.test_signals import until_said


def modes(folder: Path) -> dict[str, int]:
    """Of everything there, by path, but for what is gone before it is looked at (a file that is being renamed)."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            found[str(path)] = stat.S_IMODE(path.lstat().st_mode)
    return found


def run(script: str, *words: str, soft: int = 256, hard: int = 4096) -> str:
    """What a script says, in a process with a limit of open files."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n{script}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", limited, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_processes_that_start_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As after a power failure: gateways and fold look at one data directory in the same moment."""
    script = "from pathlib import Path; from runtime.machine import guard_data\n"
    script += "for _ in range(2000): guard_data(Path(sys.argv[1]), '700')"
    command = [sys.executable, "-c", f"import sys; {script}", str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate(timeout=120)[1] for one in both] == [""] * 3


@pytest.mark.parametrize(
    ("number", "passes", "advice"),
    [
        (errno.ENOSPC, True, "No space left on device. Free some space on its disk, or choose another --data-dir."),
        (errno.EIO, True, "Input/output error. Check its disk"),
        (errno.EROFS, False, "Read-only file system. Mount its file system for writing, or"),
        (errno.EACCES, False, "Permission denied. Change its owner, or"),
    ],
)
def test_a_disk_that_is_full_at_the_start_may_have_room_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, passes: bool, advice: str
) -> None:
    def fails(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.TemporaryFile", fails)
    message = re.escape(f"cannot write to the data directory {tmp_path}: {advice}")
    with pytest.raises(UnavailableError if passes else SetupError, match=message):
        guard_data(tmp_path, "700")


@pytest.fixture
def gateway(tmp_path: Path) -> Routelake:
    return Routelake(tmp_path / "data", "gateway")


def test_new_files_are_accessible_as_the_data_mode_says(tmp_path: Path) -> None:
    guard_data(tmp_path / "data", "750")
    (tmp_path / "data" / "file").touch()
    assert [oct(mode) for mode in modes(tmp_path / "data").values()] == ["0o750", "0o640"]


def test_new_files_are_readable_by_their_owner_only(gateway: Routelake) -> None:
    gateway.start(wait_ready_s=None)
    try:
        until_said(gateway.log_path, "serving")
        found = modes(gateway.data_dir)
        assert any(path.endswith("events.db-wal") for path in found)
        assert not {path: oct(mode) for path, mode in found.items() if mode & 0o077}
        assert "open to others" not in gateway.log_path.read_text()
    finally:
        gateway.kill()


def test_a_directory_that_was_open_before_is_said_and_left(gateway: Routelake) -> None:
    gateway.data_dir.mkdir(mode=0o755)
    gateway.data_dir.chmod(0o755)
    gateway.start(wait_ready_s=None)
    try:
        until_said(gateway.log_path, "serving")
        assert "data directory is accessible to other users" in gateway.log_path.read_text()
        assert stat.S_IMODE(gateway.data_dir.stat().st_mode) == 0o755
    finally:
        gateway.kill()


@pytest.mark.parametrize("mode", ["0", "77", "077", "rwx", "7777", ""])
def test_an_invalid_data_mode_is_refused(tmp_path: Path, mode: str) -> None:
    code, said = told("gateway", "--data-dir", tmp_path / "d", "--data-mode", mode)
    assert code == 2
    assert "--data-mode" in said and "Traceback" not in said
    assert not (tmp_path / "d").exists()


def test_children_get_every_variable_except_secrets() -> None:
    given = {
        "ROUTELAKE_HTTP_TOKENS": "a=b",
        "ROUTELAKE_HTTP_TOKEN": "b",
        "ROUTELAKE_EVENT_LOG": "l",
        "TOKEN": "t",
        "PATH": "p",
    }
    assert without_secrets(given) == {"ROUTELAKE_EVENT_LOG": "l", "TOKEN": "t", "PATH": "p"}


_CHECK = """
import sys
from runtime.logs import configure
from runtime.machine import check_file_limit
configure("gateway")
check_file_limit(int(sys.argv[1]))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_limit_of_open_files_is_raised() -> None:
    assert run(_CHECK, "1000") == "4096\n"


def test_a_limit_that_is_too_low_is_said() -> None:
    said = run(_CHECK, "10000")
    assert "limit=4096" in said
    assert "needed=10256" in said
    assert "LimitNOFILE=10256" in said


def test_the_name_of_a_new_data_directory_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut may take it, and with it an event log that is synced."""
    synced: list[Path] = []
    monkeypatch.setattr("runtime.machine.sync_folder", synced.append)
    guard_data(tmp_path / "a" / "data", "700")
    assert set(synced) == {tmp_path, tmp_path / "a"}
    guard_data(tmp_path / "a" / "data", "700")
    assert len(synced) == 2

# SPDX-License-Identifier: Apache-2.0
"""The fold as a process: Spark's files are for their owner, it listens on loopback, has no token, and stops when told to.

One fold serves both tests of this file, in their order: the second one stops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support import events as make
from eventlog.sqlite.log import SqliteLog
from runtime.procfs import threads_below
from schemas.events import encode, routing_key
from tests.runtime.test_machine import modes
from tests.runtime.test_signals import exit_code_after_many

pytestmark = pytest.mark.jvm

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
"""127.0.0.1 as /proc/net/tcp writes it, and as an IPv6 socket has it (proc(5))."""
_LISTEN = "0A"


def listening_addresses(pids: set[int]) -> set[str]:
    """The addresses on which these processes listen for TCP, in hexadecimal and without their ports."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):  # it has just ended
            sockets |= {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *rest = line.split()
            if state == _LISTEN and f"socket:[{rest[5]}]" in sockets:
                found.add(local.partition(":")[0])
    return found


def read_unless_gone(path: Path) -> bytes:
    with suppress(OSError):  # a thread or process that has just ended
        return path.read_bytes()
    return b""


def threads_of(pid: int) -> set[int]:
    return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routelake]:
    """A fold that has written a batch, started by a user with tokens."""
    folder = tmp_path_factory.mktemp("fold")
    with closing(SqliteLog(folder / "events.db")) as event_log:
        event_log.append([(routing_key(event), encode(event)) for event in (make.register(), make.put("n", "k"))])
    options = ("--event-log", f"sqlite://{folder / 'events.db'}")
    fold = Routelake(folder / "data", "fold", options, {"ROUTELAKE_HTTP_TOKENS": "alice=s3cret"})
    fold.start(wait_ready_s=None)
    try:
        wait_until((fold.lake_dir / "fold-status.json").exists, 120, "a batch", 0.1)
        yield fold
    finally:
        fold.kill()


def test_a_fold_listens_on_loopback_and_shares_no_files_or_secrets(fold: Routelake) -> None:
    """Spark's files are for their owner, too, and neither the JVM nor a worker has a token."""
    found = modes(fold.data_dir)
    assert any("/state/" in path for path in found)
    assert not {path: oct(mode) for path, mode in found.items() if mode & 0o077}
    assert fold.process is not None
    ours = listening_addresses(threads_below(fold.process.pid))
    assert ours
    assert ours <= LOOPBACK
    below = threads_below(fold.process.pid) - threads_of(fold.process.pid)
    environments = [read_unless_gone(Path(f"/proc/{pid}/environ")) for pid in below]
    assert any(environments)
    assert not any(b"s3cret" in environment for environment in environments)


def test_a_fold_stops_once_after_many_signals(fold: Routelake) -> None:
    assert fold.process is not None
    assert "fold is running" in fold.log_path.read_text()
    assert exit_code_after_many(fold.process) == 0, fold.log_tail()
    assert "Traceback" not in fold.log_path.read_text(), fold.log_tail()

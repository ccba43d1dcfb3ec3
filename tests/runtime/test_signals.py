# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT, hundreds of them: each process stops once, in time, with the exit code of a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.peers.java import free_port, wait_until
from dev.peers.routelake import ROOT

_STOP_S = 40.0
"""A stop takes less than 15 s (`runtime.supervisor.DRAIN_S`), on a machine that is not busy."""

_SUPERVISOR = """
import sys
from runtime.logs import configure
from runtime.process import run_to_end
from runtime.supervisor import Child, Supervisor
configure("serve")
child = Child("child", [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"])
run_to_end(lambda: sys.exit(Supervisor([child], "http://127.0.0.1:1/readyz", "").run()))
"""


@contextmanager
def started(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says everything in ``log``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def exit_code_after_many(process: subprocess.Popen[bytes]) -> int:
    """Signals until it ends, at first as fast as they can be sent."""
    deadline = time.monotonic() + _STOP_S
    sent = 0
    while process.poll() is None:
        assert time.monotonic() < deadline, f"it still runs after {sent} signals"
        process.send_signal(signal.SIGINT if sent % 2 else signal.SIGTERM)
        sent += 1
        if sent > 500:
            time.sleep(0.005)
    return process.returncode


def until_said(log: Path, word: str) -> None:
    wait_until(lambda: word in log.read_text(errors="replace"), 60, f"{word!r} in the log", 0.02)


def test_a_supervisor_exits_with_0_after_many_signals(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(log, "-c", _SUPERVISOR) as process:
        until_said(log, "up")
        assert exit_code_after_many(process) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("broker", "-n", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--store", "{}"),
        ("gateway", "--data-dir", "{}", "--http", "127.0.0.1:{}", "--remoting", "127.0.0.1:{}"),
    ],
    ids=lambda command: command[0],
)
def test_a_process_with_an_event_loop_exits_with_0_after_many_signals(tmp_path: Path, command: tuple[str, ...]) -> None:
    log = tmp_path / "log"
    words = [word.replace("{}", str(free_port() if ":" in word else tmp_path / "data")) for word in command]
    with started(log, "-m", "cli.main", *words) as process:
        until_said(log, "serving")
        assert exit_code_after_many(process) == 0, log.read_text()
    assert "Traceback" not in log.read_text()

# SPDX-License-Identifier: Apache-2.0
"""Which end of a child is the end of all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.children import SUPERVISED, wait_for_orphans
from runtime.process import EXIT_FAILED, EXIT_SETUP
from runtime.progress import Startup
from runtime.supervisor import Child, Supervisor


@pytest.mark.parametrize(
    ("code", "ran_s", "restarts", "ends_with"),
    [
        (EXIT_SETUP, 0.0, 0, EXIT_SETUP),  # it cannot start as things are
        (EXIT_SETUP, 61.0, 0, None),  # it could: gateways go on, and it is tried again
        (EXIT_SETUP, 0.0, 1, None),
        (EXIT_FAILED, 0.0, 0, None),
    ],
)
def test_a_child_that_ends(code: int, ran_s: float, restarts: int, ends_with: int | None) -> None:
    child = Child("fold", [sys.executable, "-c", f"raise SystemExit({code})"], restarts=restarts)
    supervisor = Supervisor([child], "http://127.0.0.1:1/readyz", "ready")
    child.start()
    assert child.process is not None and child.process.stdin is not None
    child.process.wait(60)
    child.process.stdin.close()
    child.started_s -= ran_s
    supervisor._watch(child)
    assert child.process is None
    if ends_with is None:
        assert not supervisor._stop.wait(0)
        assert child.restart_at_s > child.started_s
    else:
        assert supervisor._stop.wait(0)
        assert supervisor._exit_code == ends_with


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """As with EAGAIN and ENOMEM of fork: the others go on."""
    program = tmp_path / "program"
    child = Child("fold", [str(program)], restarts=1)
    supervisor = Supervisor([child], "http://127.0.0.1:1/readyz", "ready")
    for _ in range(2):
        supervisor._watch(child)
        assert child.process is None
        assert child.restart_at_s > time.monotonic()
        child.restart_at_s = 0.0
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    supervisor._watch(child)
    assert child.process is not None and child.process.stdin is not None
    assert child.process.wait(60) == 0
    child.process.stdin.close()


def test_a_child_that_never_stays_up_is_an_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    child = Child("fold", [sys.executable, "-c", f"raise SystemExit({EXIT_FAILED})"])
    supervisor = Supervisor([child], "http://127.0.0.1:1/readyz", "ready")
    errors = []
    for _ in range(6):
        child.restart_at_s = 0.0
        supervisor._watch(child)
        assert child.process is not None and child.process.stdin is not None
        child.process.wait(60)
        child.process.stdin.close()
        supervisor._watch(child)
        printed = capsys.readouterr()
        errors.append("child process keeps exiting" in printed.out + printed.err)
    assert errors == [False, False, False, True, False, False]


@pytest.mark.parametrize(("code", "said"), [(EXIT_FAILED, "ready; not running: fold\n"), (None, "ready\n")])
def test_the_ready_line_names_what_does_not_run(
    code: int | None, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "import os; os.read(0, 1)" if code is None else f"raise SystemExit({code})"
    child = Child("fold", [sys.executable, "-c", ends])
    supervisor = Supervisor([child], "http://127.0.0.1:1/readyz", "ready")

    def look(_: Startup) -> bool:
        if code is not None and child.process is not None:
            return False
        supervisor._stop.set()
        return True

    monkeypatch.setattr(Startup, "look", look)
    child.back_off_s = 60.0
    supervisor.run()
    assert said in capsys.readouterr().out


def test_a_start_waits_for_the_children_of_a_killed_supervisor(tmp_path: Path) -> None:
    """And for no others: neither for children of a living supervisor, nor for those of another data directory."""
    lives = "import os, sys; os.read(0, 1)"
    command = [sys.executable, "-c", lives, "cli.child", "--data-dir", str(tmp_path)]
    said: list[str] = []
    for supervisor, waits in ((os.getpid(), False), (1 if os.getpid() != 1 else 2, True)):
        environment = {**os.environ, SUPERVISED: str(supervisor)}
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as child:
            wait_for_orphans(tmp_path, said.append, 0.3)
            wait_for_orphans(tmp_path / "other", said.append, 0.3)
            assert child.stdin is not None
            child.stdin.close()
        assert [str(child.pid) in text for text in said] == [True] * waits


FOLD_OF_NOBODY = """
import sys
import threading
import time

import pipelines.main as main
from cli.main import app
from cli.usage import run

def until_heard(*_):
    while any(thread.name == "parent-watch" for thread in threading.enumerate()):
        time.sleep(0.01)

main._check_log = until_heard
main.spark_session = lambda settings: print("starts Spark", flush=True)
raise SystemExit(run(app, sys.argv[1:]))
"""


def test_a_fold_whose_supervisor_is_gone_starts_no_spark(tmp_path: Path) -> None:
    """It hears of that before it would start Spark."""
    done = subprocess.run(
        [sys.executable, "-c", FOLD_OF_NOBODY, "fold", "--data-dir", str(tmp_path / "data")],
        env={**os.environ, SUPERVISED: "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

# SPDX-License-Identifier: Apache-2.0
"""Tasks that a process cannot do without: their failure is logged, and ends the process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from obstore.store import MemoryStore

from dev.peers.java import free_port
from dev.peers.routelake import ROOT
from dev.support.loops import eventually, on_a_loop
from dev.support.stores import store
from lake.announce import Announcer
from lake.history.intervals import BackgroundStep, IntervalKeeper
from lake.lease import Lease
from pipelines.job import FoldSettings
from pipelines.main import run_fold
from runtime.process import EXIT_FAILED, StopSignal
from runtime.supervised_tasks import critical_task, critical_thread, on_death, watch_threads

Told = list[tuple[str, str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    # Gateways that other tests of this process keep are not to hear of these deaths.
    monkeypatch.setattr("runtime.supervised_tasks._listeners", [])
    watch_threads()
    found: Told = []
    forget = on_death(lambda what, error: found.append((what, repr(error))))
    yield found
    forget()


def die() -> None:
    raise RuntimeError("of this")


def run_thread(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


def test_the_end_of_a_critical_thread_is_reported(told: Told) -> None:
    for name in ("head", "any"):
        run_thread(critical_thread(die, name))
    assert told == [("head", "RuntimeError('of this')"), ("any", "RuntimeError('of this')")]


def test_the_end_of_any_other_thread_is_not_reported(told: Told) -> None:
    for name in ("fqdn", "head"):
        run_thread(threading.Thread(target=die, name=name))
    assert told == []


def test_threads_of_the_product_are_made_as_essential_or_named_here() -> None:
    """The author of a new task decides whether it is watched."""
    found = {
        f"{path.relative_to(ROOT)}"
        for room in ("api", "lake", "pipelines", "runtime", "security", "remoting")
        for path in (ROOT / room).rglob("*.py")
        if "threading.Thread(" in path.read_text()
    }
    assert found == {
        "api/http/csrf.py",  # asks for the machine's name; without it a Host is refused
        "runtime/supervised_tasks.py",  # `critical_thread`
    }


@on_a_loop
async def test_the_failure_of_a_critical_task_is_reported(told: Told) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        die()

    kept = critical_task(asyncio.create_task(work()), "work")
    await eventually(lambda: told)
    assert told == [("work", "RuntimeError('of this')")]
    assert kept.done()


@on_a_loop
async def test_a_cancelled_or_finished_task_is_not_reported(told: Told) -> None:
    waiting = critical_task(asyncio.create_task(asyncio.Event().wait()), "waiting")
    short = critical_task(asyncio.create_task(asyncio.sleep(0)), "short")
    await short
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert told == []


GATEWAY = """
from cli.main import main
from {module} import {name}

{kind} broken(self, *args):
    raise RuntimeError("of this")

{name}.{method} = broken
main()
"""


@pytest.mark.parametrize(
    ("module", "name", "method", "kind", "what"),
    [
        *(
            pytest.param(*case, marks=pytest.mark.deep)
            for case in (
                ("api.live_view.replica", "LiveReplica", "_run", "def", "live-view"),
                ("api.gateway.follower", "Follower", "_run", "def", "view-follower"),
                ("api.gateway.fold_status", "FoldStatusReader", "follow", "async def", "status of the fold"),
                (
                    "remoting.server.server",
                    "RemotingServer",
                    "_tick",
                    "async def",
                    "connection deadlines",
                ),
            )
        ),
        ("eventlog.group_commit", "GroupCommit", "_take", "def", "event log: appends"),
    ],
)
def test_a_gateway_exits_if_a_critical_thread_or_task_ends(
    tmp_path: Path, module: str, name: str, method: str, kind: str, what: str
) -> None:
    """And is started again by `serve`, as after any code but 0 and 2."""
    ports = [f"--http=127.0.0.1:{free_port()}", f"--remoting=127.0.0.1:{free_port()}"]
    done = subprocess.run(
        [
            *(sys.executable, "-c", GATEWAY.format(module=module, name=name, method=method, kind=kind)),
            *("gateway", "--data-dir", str(tmp_path / "data"), *ports),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert "background task failed; the process exits" in printed
    assert what in printed
    assert "of this" in printed


class Keeper:
    """A task with steps that are due and fail."""

    is_due = True

    def step(self, epoch: int, version: int) -> None:
        die()


FOLD_THREADS: dict[str, Callable[[], object]] = {
    "fold-lease": lambda: Lease(store(MemoryStore()), "one").keep(),
    "epochs-announcer": lambda: Announcer("kafka://127.0.0.1:1/t").start(),
    "intervals": lambda: BackgroundStep(cast("IntervalKeeper", Keeper())).start(1, 1),
}


@pytest.mark.parametrize("what", FOLD_THREADS)
def test_a_fold_exits_if_a_critical_thread_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told, what: str
) -> None:
    """With code 1, after which it is started again."""

    def broken(self: object) -> None:
        die()

    def run(settings: FoldSettings, stop: StopSignal, starts_spark: threading.Event) -> int:
        FOLD_THREADS[what]()
        assert stop.wait(30)
        return 0

    monkeypatch.setattr(Lease, "_keep", broken)
    monkeypatch.setattr(Announcer, "_run", broken)
    monkeypatch.setattr("pipelines.main._run", run)
    monkeypatch.setattr(StopSignal, "listen", lambda self: self)
    monkeypatch.setattr("pipelines.main.on_parent_exit", lambda orphaned: None)
    settings = FoldSettings(tmp_path, tmp_path, "memory:", tmp_path)
    assert run_fold(settings) == EXIT_FAILED
    assert told == [(what, "RuntimeError('of this')")]

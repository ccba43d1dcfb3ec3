# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of `serve` itself at any instant, and a new start at once: it waits for the processes that were left.

The next start follows the kill at once. Each start has to get as far as the next kill wants it. `test_kill.py` checks
that no acknowledged event is lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dev.peers.java import port_answers, wait_until
from dev.peers.procfs import commands_of_children
from dev.peers.routelake import Routelake

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
LIKE_A_HELD_LAKE = ("in use by a running fold", "held by another fold", "cannot be listened on", "Traceback")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Routelake]:
    server = Routelake(tmp_path / "data")
    try:
        yield server
    finally:
        server.kill()
        print(server.log_tail(200))


def _kill(server: Routelake) -> None:
    """SIGKILL of the supervisor alone; its children have no supervisor from now on."""
    assert server.process is not None
    server.process.kill()
    server.process.wait()


def _has_java(server: Routelake) -> bool:
    with suppress(LookupError, OSError):
        below = commands_of_children(server.child("fold"))
        return any("org.apache.spark" in " ".join(command) for command in below.values())
    return False


def _stages(server: Routelake) -> dict[str, Callable[[], bool]]:
    """How far a start may be when it is killed.

    It has children only after the orphans have ended, which answer at the same ports until then.
    """
    return {
        "nothing": lambda: True,
        "a fold": lambda: bool(server.children("fold")),
        "a gateway that listens": lambda: bool(server.children("fold")) and port_answers(server.http_port),
        "a JVM": lambda: _has_java(server),
        "all": lambda: bool(server.children("fold")) and server.is_whole(),
    }


def _reach(server: Routelake, stage: str) -> None:
    def reached() -> bool:
        assert server.process is not None
        assert server.process.poll() is None, server.log_tail()
        return _stages(server)[stage]()

    wait_until(reached, PATIENCE_S, f"{stage} of a start after a kill", 0.02)


def test_a_start_right_after_a_kill_goes_on(server: Routelake, request: pytest.FixtureRequest) -> None:
    deep = request.config.getoption("--deep", default=False)
    rng = random.Random(20261125)
    stages = list(_stages(server))
    kills = [*stages, *rng.choices(stages, k=15)] if deep else rng.sample(stages[:-1], k=2)
    for stage in kills:
        server.start(wait_ready_s=None)
        _reach(server, stage)
        threading.Event().wait(rng.uniform(0, 1.5))
        _kill(server)
    server.start(wait_ready_s=None)
    _reach(server, "all")
    for words in LIKE_A_HELD_LAKE:
        assert words not in server.log_path.read_text(), words

    # A fold that runs is no orphan: another `serve` of the same place does not wait for it.
    second = Routelake(server.data_dir, options=server._options)
    second.start(wait_ready_s=None)
    try:
        assert second.process is not None
        assert second.process.wait(60) == 2, second.log_tail()
        assert "in use by a running fold" in second.log_tail()
        assert "waiting for processes" not in second.log_tail()
    finally:
        second.kill()
    assert server.stop() == 0

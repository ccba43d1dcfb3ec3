# SPDX-License-Identifier: Apache-2.0
"""Faults, done to a running routelake: each returns when it is over, and says what it hit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from benchmarks.harness.machine import tree
from peers.java import wait_until
from peers.routelake import Routelake
from peers.stopped import stopped
from tests.robustness.plan import Fault
from tests.robustness.record import Injected
from tests.robustness.world import World

_SECOND_FOLD_S: Final = 60.0
_HOUR_MS: Final = 3_600_000


class Faults:
    """What can happen to one world; for one thread.

    Args:
        world: started.
        cut: cuts every client's connection, and says how many there were.
    """

    def __init__(self, world: World, cut: Callable[[], int]) -> None:
        self._world, self._server, self._cut = world, world.server, cut
        self._pause = threading.Event()
        server = self._server
        self._kinds: dict[str, Callable[[float], str]] = {
            "kill-gateway": lambda hold_s: self._kill(server.children("gateway")),
            "kill-fold": lambda hold_s: self._kill(server.children("fold")),
            "kill-log": lambda hold_s: self._kill([server.log_worker_pid()]),
            "stop-gateway": lambda hold_s: self._stop(server.child("gateway"), hold_s),
            "stop-fold": lambda hold_s: self._stop(server.child("fold"), hold_s),
            "stop-log": lambda hold_s: self._stop(server.log_worker_pid(), hold_s),
            "cut": lambda hold_s: f"cut {self._cut()} connections",
            "kill-all": self._kill_all,
            "restart": self._restart,
            "lost-checkpoint": self._lose_checkpoint,
            "second-fold": self._second_fold,
            "slow-disk": self._slow_disk,
            "failing-disk": self._failing_disk,
            "disk-full": self._fill_disk,
            "clock-forward": self._clock_forward,
            "clock-back": self._clock_back,
            "kill-second": self._kill_second,
            "stop-second": lambda hold_s: self._stop(self._second().pid, hold_s),
            "kill-kafka": self._kill_kafka,
            "stop-kafka": self._stop_kafka,
        }

    @property
    def kinds(self) -> set[str]:
        """What can be injected."""
        return set(self._kinds)

    def inject(self, fault: Fault) -> Injected:
        """Let it happen now. A fault that finds nobody to hit says so."""
        begun_s = time.monotonic()
        try:
            detail = self._kinds[fault.kind](fault.hold_s)
        except (LookupError, FileNotFoundError) as error:
            detail = f"nobody was there: {error}"
        return Injected(fault.kind, begun_s, time.monotonic(), detail)

    @staticmethod
    def _kill(pids: list[int]) -> str:
        if not pids:
            raise LookupError("no such process")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"killed {pids}"

    def _stop(self, pid: int, hold_s: float) -> str:
        pids = tree(pid)
        with stopped(pids):
            self._pause.wait(hold_s)
        return f"stood still for {hold_s} s: {list(pids)}"

    def _kill_all(self, hold_s: float) -> str:
        self._server.kill()
        self._pause.wait(hold_s)
        self._server.start(wait_ready_s=None)
        return "all were killed"

    def _restart(self, hold_s: float) -> str:
        code = World.stop_one(self._server)
        self._pause.wait(hold_s)
        self._server.start(wait_ready_s=None)
        return f"ended with {code}"

    def _lose_checkpoint(self, hold_s: float) -> str:
        World.stop_one(self._server)
        shutil.rmtree(self._server.data_dir / "checkpoints", ignore_errors=True)
        self._server.start(wait_ready_s=None)
        return "checkpoint deleted"

    def _second_fold(self, hold_s: float) -> str:
        """It must end by itself, and disturb nobody. Not while there is none: then it is the first."""
        try:
            wait_until(self._server.is_whole, _SECOND_FOLD_S, "a first fold", 0.2)
        except TimeoutError as error:
            raise LookupError(error) from None
        second = Routelake(self._server.data_dir, "fold", self._world.options())
        second.start(wait_ready_s=None)
        assert second.process is not None
        try:
            return f"ended with {second.process.wait(_SECOND_FOLD_S)}"
        except subprocess.TimeoutExpired:
            return "it did not end"
        finally:
            second.kill()

    # --- the machine ---

    def _slow_disk(self, hold_s: float) -> str:
        assert self._world.preload is not None
        late_ms = round(hold_s * 200)
        self._world.preload.slow_disk(late_ms)
        try:
            self._pause.wait(2 * hold_s)
        finally:
            self._world.preload.slow_disk(0)
        return f"each fsync took {late_ms} ms longer for {2 * hold_s} s"

    def _failing_disk(self, hold_s: float) -> str:
        assert self._world.preload is not None
        self._world.preload.failing_disk(True)
        try:
            self._pause.wait(hold_s)
        finally:
            self._world.preload.failing_disk(False)
        return f"each fsync failed for {hold_s} s"

    def _fill_disk(self, hold_s: float) -> str:
        assert self._world.disk is not None
        try:
            self._world.disk.fill()
            self._pause.wait(hold_s)
        finally:
            self._world.disk.empty()
        return f"full for {hold_s} s"

    def _clock_forward(self, hold_s: float) -> str:
        """It stays there."""
        assert self._world.preload is not None
        return f"{self._world.preload.step_clock(_HOUR_MS)} ms ahead from now on"

    def _clock_back(self, hold_s: float) -> str:
        """The log's time stands still meanwhile."""
        assert self._world.preload is not None
        self._world.preload.step_clock(-_HOUR_MS)
        try:
            self._pause.wait(hold_s)
        finally:
            self._world.preload.step_clock(_HOUR_MS)
        return f"an hour back for {hold_s} s"

    # --- a second gateway, Kafka ---

    def _second(self) -> subprocess.Popen[bytes]:
        process = self._world.gateways[1].process
        assert process is not None
        return process

    def _kill_second(self, hold_s: float) -> str:
        second = self._world.gateways[1]
        second.kill()
        self._pause.wait(hold_s)
        second.start(wait_ready_s=None)
        return "the second gateway was killed"

    def _kill_kafka(self, hold_s: float) -> str:
        kafka = self._world.kafka
        assert kafka is not None
        kafka.process.sigkill()
        self._pause.wait(hold_s)
        kafka.start()
        return f"Kafka was killed, and back after {hold_s + kafka.process.start_seconds:.1f} s"

    def _stop_kafka(self, hold_s: float) -> str:
        kafka = self._world.kafka
        assert kafka is not None
        kafka.process.sigstop()
        try:
            self._pause.wait(hold_s)
        finally:
            kafka.process.sigcont()
        return f"Kafka stood still for {hold_s} s"

# SPDX-License-Identifier: Apache-2.0
"""Faults, done to a running routelake: each returns when it is over, and reports its target.

A fault that needs a target waits for one: after a kill of all processes a gateway needs a while to start.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dev.benchmarks.harness.machine import tree
from dev.fault_injection.effects import FORWARD_MS
from dev.fault_injection.plan import Fault
from dev.fault_injection.preload import Preload
from dev.fault_injection.record import Injected
from dev.fault_injection.world import World
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.stopped import stopped

T = TypeVar("T")

_SECOND_FOLD_S: Final = 180.0
_SOMEBODY_S: Final = 180.0
"""Time that a fault waits for a target, in seconds."""
_LONGER: Final = 5
"""Times as long as others: longer than a broker's heartbeatTimeoutMillis."""
_REFUSED: Final = 2
"""Exit code of who may not start."""
_DAY_MS: Final = 86_400_000
_BACK_MS: Final = (5_000, 3_600_000, _DAY_MS, 30 * 365 * _DAY_MS)
_LEAP_MS: Final = (40 * _DAY_MS, 365 * _DAY_MS, 12 * 365 * _DAY_MS, 80 * 365 * _DAY_MS)
"""Further than a gateway that starts may have been away."""


class Done(NamedTuple):
    """Result of a fault.

    Attributes:
        detail: description in words.
        hit: whether it did anything.
        wrong: errors that it has revealed.
    """

    detail: str
    hit: bool = True
    wrong: str = ""


class Faults:
    """Faults that can be injected into one world; for one thread.

    Args:
        world: the started world.
        cut: cuts every client's connection, and returns their number.
    """

    def __init__(self, world: World, cut: Callable[[], int]) -> None:
        self._world, self._server, self._cut = world, world.server, cut
        self._pause = threading.Event()
        self._waited_s = 0.0
        server = self._server
        self._kinds: dict[str, Callable[[float], Done]] = {
            "kill-gateway": lambda hold_s: self._kill(lambda: server.children("gateway")),
            "kill-fold": lambda hold_s: self._kill(lambda: server.children("fold")),
            "kill-log": lambda hold_s: self._kill(lambda: [server.log_worker_pid()]),
            "kill-workers": lambda hold_s: self._kill(self._spark_workers),
            "stop-gateway": lambda hold_s: self._stop(lambda: server.child("gateway"), hold_s),
            "stop-fold": lambda hold_s: self._stop(lambda: server.child("fold"), hold_s),
            "stop-log": lambda hold_s: self._stop(server.log_worker_pid, hold_s),
            "cut": self._cut_all,
            "kill-all": self._kill_all,
            "restart": self._restart,
            "lost-checkpoint": self._lose_checkpoint,
            "second-fold": self._second_fold,
            "slow-disk": self._slow_disk,
            "failing-disk": self._failing_disk,
            "disk-full": self._fill_disk,
            "clock-forward": self._clock_forward,
            "clock-back": self._clock_back,
            "clock-leap": self._clock_leap,
            "kill-second": self._kill_second,
            "stop-second": lambda hold_s: self._stop(lambda: self._second().pid, hold_s),
            "separate-second": self._separate_second,
            "kill-kafka": self._kill_kafka,
            "stop-kafka": self._stop_kafka,
        }

    @property
    def kinds(self) -> set[str]:
        """Names of the faults that can be injected."""
        return set(self._kinds)

    def inject(self, fault: Fault) -> Injected:
        """Let it happen now. A fault without a target reports that."""
        begun_s, self._waited_s = time.monotonic(), 0.0
        try:
            done = self._kinds[fault.kind](fault.hold_s)
        except TimeoutError as error:
            done = Done(f"nobody was there: {error}", hit=False)
        return Injected(fault.kind, begun_s, time.monotonic(), *done, waited_s=self._waited_s)

    def _somebody(self, look: Callable[[], T]) -> T:
        """Return the result of a look once it finds something.

        Raises:
            TimeoutError: It never finds anything.
        """
        found: list[T] = []

        def there() -> bool:
            with suppress(LookupError, FileNotFoundError, ProcessLookupError):
                found[:] = [look()]
            return bool(found and found[0])

        self._wait(there, "somebody to hit", 0.1)
        return found[0]

    def _wait(self, condition: Callable[[], bool], what: str, every_s: float) -> None:
        begun_s = time.monotonic()
        try:
            wait_until(condition, _SOMEBODY_S, what, every_s)
        finally:
            self._waited_s += time.monotonic() - begun_s

    def _kill(self, look: Callable[[], list[int]]) -> Done:
        pids = self._somebody(look)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return Done(f"killed {pids}")

    def _stop(self, look: Callable[[], int], hold_s: float) -> Done:
        pids = tree(self._somebody(look))
        with stopped(pids):
            self._pause.wait(hold_s)
        return Done(f"stood still for {hold_s} s: {sorted(pids)}", hit=bool(pids))

    def _spark_workers(self) -> list[int]:
        """Forks of a daemon, each of which folds a shard."""
        found = []
        for pid in tree(self._server.child("fold")):
            with suppress(OSError):  # it has just ended
                command = Path(f"/proc/{pid}/cmdline").read_text()
                if "pyspark.worker" in command and "worker_daemon" in command:
                    found.append(pid)
        return sorted(found)

    def _cut_all(self, hold_s: float) -> Done:
        return Done(f"cut {self._somebody(self._cut)} connections")

    def _kill_all(self, hold_s: float) -> Done:
        self._server.kill()
        self._pause.wait(hold_s)
        self._server.start(wait_ready_s=None)
        return Done("all were killed")

    def _restart(self, hold_s: float) -> Done:
        self._somebody(lambda: self._server.children("gateway"))  # by now it knows what to do with a signal
        code = World.stop_one(self._server)
        self._pause.wait(hold_s)
        self._server.start(wait_ready_s=None)
        return Done(f"ended with {code}", wrong=f"asked to stop, it ended with {code}" if code else "")

    def _lose_checkpoint(self, hold_s: float) -> Done:
        self._somebody(lambda: self._server.children("gateway"))
        World.stop_one(self._server)
        checkpoints = self._server.data_dir / "checkpoints"
        hit = checkpoints.exists()
        shutil.rmtree(checkpoints, ignore_errors=True)
        self._server.start(wait_ready_s=None)
        return Done("checkpoint deleted" if hit else "there was none", hit)

    def _second_fold(self, hold_s: float) -> Done:
        """Start a second fold, which must end by itself without effect. Wait for the first fold before."""
        self._wait(self._server.is_whole, "a first fold", 0.2)
        second = Routelake(self._server.data_dir, "fold", self._world.options())
        second.start(wait_ready_s=None)
        assert second.process is not None
        try:
            said = f"ended with {second.process.wait(_SECOND_FOLD_S)}"
        except subprocess.TimeoutExpired:
            said = "it did not end"
        finally:
            second.kill()
        refused = said == f"ended with {_REFUSED}"
        return Done(said, wrong="" if refused else f"a second fold on one lake: {said}")

    # --- the machine ---

    def _slow_disk(self, hold_s: float) -> Done:
        late_ms = round(hold_s * 200)
        return self._wrong_disk(
            lambda on: self._preload.slow_disk(late_ms if on else 0), 2 * hold_s, f"{late_ms} ms late"
        )

    def _failing_disk(self, hold_s: float) -> Done:
        return self._wrong_disk(self._preload.failing_disk, hold_s, "failed")

    def _wrong_disk(self, switch: Callable[[bool], None], hold_s: float, what: str) -> Done:
        """For this time, and until a request has met the fault."""
        before = self._preload.syncs_hit
        switch(True)
        try:
            self._pause.wait(hold_s)
            self._somebody(lambda: self._preload.syncs_hit - before)
        finally:
            switch(False)
        return Done(f"for {hold_s} s {self._preload.syncs_hit - before} fsyncs were {what}")

    @property
    def _preload(self) -> Preload:
        assert self._world.preload is not None
        return self._world.preload

    def _fill_disk(self, hold_s: float) -> Done:
        assert self._world.disk is not None
        try:
            left = self._world.disk.fill()
            self._pause.wait(hold_s)
        finally:
            self._world.disk.empty()  # before anything else: no process gets on meanwhile
        return Done(f"for {hold_s} s {left} bytes were left", hit=left < 1 << 20)

    def _clock_forward(self, hold_s: float) -> Done:
        """Set the clock ahead, for the rest of the run."""
        return Done(f"{self._preload.step_clock(FORWARD_MS)} ms ahead from now on")

    def _clock_back(self, hold_s: float) -> Done:
        """The log's time goes on more slowly meanwhile."""
        return self._set_clock(-_one_of(_BACK_MS, hold_s), hold_s)

    def _clock_leap(self, hold_s: float) -> Done:
        """Nothing is stamped meanwhile, nor does a gateway start."""
        return self._set_clock(_one_of(_LEAP_MS, hold_s), hold_s)

    def _set_clock(self, by_ms: int, hold_s: float) -> Done:
        self._preload.step_clock(by_ms)
        try:
            self._pause.wait(hold_s)
        finally:
            self._preload.step_clock(-by_ms)
        return Done(f"{by_ms} ms ahead for {hold_s} s")

    # --- a second gateway, Kafka ---

    def _second(self) -> subprocess.Popen[bytes]:
        process = self._world.gateways[1].process
        assert process is not None
        return process

    def _kill_second(self, hold_s: float) -> Done:
        second = self._world.gateways[1]
        with self._world.second_lock:
            second.kill()
            self._pause.wait(hold_s)
            second.start(wait_ready_s=None)
        return Done("the second gateway was killed")

    def _separate_second(self, hold_s: float) -> Done:
        """Separate it from its clients and from Kafka, but not from its machine, nor from the tables."""
        machine = self._world.machine
        assert machine is not None
        machine.pull()
        try:
            self._pause.wait(_LONGER * hold_s)
        finally:
            machine.plug()
        return Done(f"the second gateway was alone for {_LONGER * hold_s:.1f} s")

    def _kill_kafka(self, hold_s: float) -> Done:
        kafka = self._world.kafka
        assert kafka is not None
        kafka.process.sigkill()
        self._pause.wait(hold_s)
        kafka.start()
        return Done(f"Kafka was killed, and back after {hold_s + kafka.process.start_seconds:.1f} s")

    def _stop_kafka(self, hold_s: float) -> Done:
        kafka = self._world.kafka
        assert kafka is not None
        kafka.process.sigstop()
        try:
            self._pause.wait(hold_s)
        finally:
            kafka.process.sigcont()
        return Done(f"Kafka stood still for {hold_s} s")


def _one_of(sizes_ms: tuple[int, ...], hold_s: float) -> int:
    """One of them, by the milliseconds of the plan."""
    return sizes_ms[round(hold_s * 1000) % len(sizes_ms)]

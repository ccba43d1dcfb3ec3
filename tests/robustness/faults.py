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
from peers.routelake import Routelake
from peers.stopped import stopped
from tests.robustness.plan import Fault
from tests.robustness.record import Injected

_SECOND_FOLD_S: Final = 60.0


class Faults:
    """What can happen to one routelake; for one thread.

    Args:
        server: started.
        options: that a second fold is to be started with.
    """

    def __init__(self, server: Routelake, options: tuple[str, ...] = ()) -> None:
        self._server, self._options = server, options
        self._pause = threading.Event()
        self._kinds: dict[str, Callable[[float], str]] = {
            "kill-gateway": lambda hold_s: self._kill(server.children("gateway")),
            "kill-fold": lambda hold_s: self._kill(server.children("fold")),
            "kill-log": lambda hold_s: self._kill([server.log_worker_pid()]),
            "stop-gateway": lambda hold_s: self._stop(server.child("gateway"), hold_s),
            "stop-fold": lambda hold_s: self._stop(server.child("fold"), hold_s),
            "stop-log": lambda hold_s: self._stop(server.log_worker_pid(), hold_s),
            "kill-all": self._kill_all,
            "restart": self._restart,
            "lost-checkpoint": self._lose_checkpoint,
            "second-fold": self._second_fold,
        }

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
        code = self._server.stop()
        self._pause.wait(hold_s)
        self._server.start(wait_ready_s=None)
        return f"ended with {code}"

    def _lose_checkpoint(self, hold_s: float) -> str:
        self._server.stop()
        shutil.rmtree(self._server.data_dir / "checkpoints", ignore_errors=True)
        self._server.start(wait_ready_s=None)
        return "checkpoint deleted"

    def _second_fold(self, hold_s: float) -> str:
        """It must end by itself, and disturb nobody."""
        second = Routelake(self._server.data_dir, "fold", self._options)
        second.start(wait_ready_s=None)
        assert second.process is not None
        try:
            return f"ended with {second.process.wait(_SECOND_FOLD_S)}"
        except subprocess.TimeoutExpired:
            return "it did not end"
        finally:
            second.kill()

# SPDX-License-Identifier: Apache-2.0
"""`routelake serve`: the gateway and the fold as child processes, supervised and restarted.

A crashed child is started again after a pause. The pause doubles with each crash in a row (0.5 s to 30 s). After the
child has run for a minute, the pause is short again. Exit code 2 at the first start of a child means that it cannot
start with these settings (port in use, lake held by another fold, ...). Its own message has the remedy, and `serve`
stops with that code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from runtime.children import SUPERVISED
from runtime.process import EXIT_SETUP, StopSignal, tell_ready
from runtime.progress import Startup
from runtime.secrets import without_secrets
from runtime.version import PROGRAM

log = structlog.get_logger("routelake.serve")

DRAIN_S: Final = 12.0
"""Maximum time that a child has to stop before it is killed, in seconds. A whole stop takes less than 15 s."""

_FIRST_BACK_OFF_S: Final = 0.5
_MAX_BACK_OFF_S: Final = 30.0
_STEADY_S: Final = 60.0
_DOES_NOT_STAY_UP_S: Final = 4.0
"""Pause before a start, in seconds, at which one more line is logged. The child has then ended four times in a row."""


@dataclass(slots=True)
class Child:
    """One supervised process."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    restart_at_s: float = 0.0
    back_off_s: float = _FIRST_BACK_OFF_S
    restarts: int = 0
    has_secrets: bool = False
    """Whether the child needs the secrets of this process's environment."""
    settings: bytes = b""
    """Settings that the child reads first from its standard input."""

    def start(self) -> None:
        """Start the child in its own session, so that a terminal's Ctrl-C reaches only the supervisor."""
        self.process = subprocess.Popen(
            list(self.command),
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**(os.environ if self.has_secrets else without_secrets(os.environ)), SUPERVISED: str(os.getpid())},
        )
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the child has already ended
            self.process.stdin.write(self.settings)
            self.process.stdin.flush()
        self.started_s = time.monotonic()
        log.info("started", child=self.name, pid=self.process.pid)


class Supervisor:
    """Runs child processes until a stop is requested. `run` blocks."""

    def __init__(self, children: Sequence[Child], ready_url: str, ready_line: str) -> None:
        self._children = children
        self._ready_url = ready_url
        self._ready_line = ready_line
        self._stop = StopSignal()
        self._exit_code = 0

    def run(self) -> int:
        """Start and watch the children, and stop them on SIGTERM or SIGINT. Returns the exit code."""
        self._stop.listen()
        for child in self._children:
            self._start(child)
        announced = False
        startup = Startup(self._ready_url, spark=any(child.name == "fold" for child in self._children))
        next_probe_s = 0.0
        while not self._stop.wait(0.05):
            for child in self._children:
                self._watch(child)
            now = time.monotonic()
            if not announced and now >= next_probe_s:
                next_probe_s = now + 0.2
                if startup.look():
                    announced = True
                    tell_ready()
                    down = [child.name for child in self._children if child.process is None]
                    without = f"; not running: {', '.join(down)}" if down else ""
                    print(f"{self._ready_line}{without}", flush=True)
        log.info("stopping")
        self._stop_all()
        return self._exit_code

    def _watch(self, child: Child) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.restart_at_s:
                child.restarts += 1
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        child.process.communicate()  # closes the pipe
        child.process = None
        is_steady = now - child.started_s >= _STEADY_S
        if code == EXIT_SETUP and child.restarts == 0 and not is_steady:
            # The child has printed its message. Another start would only print it again.
            self._exit_code = EXIT_SETUP
            self._stop.set()
            return
        if is_steady:
            child.back_off_s = _FIRST_BACK_OFF_S
        log.warning(
            "child process exited; starting it again", child=child.name, exit_code=code, in_seconds=child.back_off_s
        )
        if child.back_off_s == _DOES_NOT_STAY_UP_S:
            log.error(
                "child process keeps exiting; the other processes go on without it",
                child=child.name,
                exit_code=code,
                advice=f"see its log lines above, GET /readyz and {PROGRAM} doctor",
            )
        self._back_off(child)

    def _start(self, child: Child) -> None:
        """Start a child. If memory or processes are short, try again later, and do not stop the other children."""
        try:
            child.start()
        except OSError as error:
            log.error(
                "cannot start a child process; retrying",
                child=child.name,
                error=str(error),
                in_seconds=child.back_off_s,
            )
            self._back_off(child)

    @staticmethod
    def _back_off(child: Child) -> None:
        child.restart_at_s = time.monotonic() + child.back_off_s
        child.back_off_s = min(child.back_off_s * 2, _MAX_BACK_OFF_S)

    def _stop_all(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        running = [(child, child.process) for child in self._children if child.process is not None]
        for _, process in running:
            process.terminate()
        for child, process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("child process did not stop in time; killed", child=child.name, pid=process.pid)
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()  # waits, and closes the pipe
        log.info("stopped")

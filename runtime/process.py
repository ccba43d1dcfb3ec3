# SPDX-License-Identifier: Apache-2.0
"""The life of one process: how it says that it is ready, hears that it should stop, and ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from runtime.children import SUPERVISED
from schemas.errors import RoutelakeError, SetupError

EXIT_DONE: Final = 0
"""Done, or stopped as asked."""
EXIT_FAILED: Final = 1
"""Failed: a defect, a full or failing disk, or another fold has the tables. A supervisor may start it again. Nothing is
lost."""
EXIT_SETUP: Final = 2
"""Cannot start with these settings. The line that begins with `routelake:` says what to do. A supervisor must not start
it again."""

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """SIGTERM, SIGINT, or `set`, heard through a pipe; any number of them, at any time, is one stop.

    A handler runs between any two instructions of the main thread, perhaps while that holds the lock of an Event, of a
    Condition or of a log: a handler that takes one waits for ever. Writing to a pipe takes none. The handlers stay
    until the process ends, so that a second signal does not end it with another exit code.

    Source: Python's ``signal`` module, "Execution of Python signal handlers"; signal-safety(7).
    """

    def __init__(self) -> None:
        """Nothing is heard before `listen`."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def listen(self) -> StopSignal:
        """Take the signals; again after a library has taken them. Main thread only."""
        for number in _STOPS:
            signal.signal(number, self._heard)
        return self

    def set(self) -> None:
        """Stop. Callable from any thread."""
        with suppress(BlockingIOError):  # full: it has been heard often enough
            os.write(self._writer, b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Return True if the process should stop. Waits up to ``timeout_s`` for that."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def event(self) -> asyncio.Event:
        """Set from the stop on, for the event loop that runs."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            loop.remove_reader(self._reader)
            stopped.set()

        loop.add_reader(self._reader, heard)
        return stopped

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self.set()


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """Tell systemd that a unit with ``Type=notify`` is ready. Source: sd_notify(3).

    Nothing happens without NOTIFY_SOCKET, nor in a child of `runtime.supervisor`, which notifies for all of them. An
    error is ignored: a NameServer answers all the same.
    """
    path = environ.get("NOTIFY_SOCKET", "")
    if not path or SUPERVISED in environ:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # the abstract namespace, unix(7)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(b"READY=1", address)


def refusal(error: RoutelakeError) -> int:
    """Say why the process ends, in one line; returns its exit code."""
    print(f"routelake: {error}", file=sys.stderr)
    return EXIT_SETUP if isinstance(error, SetupError) else EXIT_FAILED


def run_to_end(main: Callable[[], object]) -> NoReturn:
    """Run a program and end the process: with its SystemExit's code, 0 without one, 1 for a defect."""
    try:
        main()
        code: object = None
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = EXIT_FAILED
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = EXIT_FAILED
    end_process(code if isinstance(code, int) else 0)


def end_process(code: int) -> NoReturn:
    """End now, with this code, and with everything printed.

    Threads of native libraries (Arrow, delta-rs) go on while the interpreter takes down what they use: on a lake of 870
    files that ended seven of eight refusals with a segmentation fault. So nothing is taken down.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the reader is gone, the disk is full, or there never was one
            code = code or EXIT_FAILED
    os._exit(code)

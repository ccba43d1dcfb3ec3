# SPDX-License-Identifier: Apache-2.0
"""Life cycle of one process: readiness, stop signals and exit codes."""

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

EXIT_FAILED: Final = 1
"""Failed: a defect, a full or failing disk, or another fold has the tables at the URL of `--lake`. A supervisor may
start it again. Nothing is lost."""
EXIT_SETUP: Final = 2
"""Cannot start with these settings, or another fold has the tables in this folder. The line that begins with
`routelake:` says what to do. systemd does not start it again."""

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """Stop request from SIGTERM, SIGINT or `set`, through a pipe. Several requests count as one.

    A signal handler runs between any two instructions of the main thread. At that time the main thread may hold the
    lock of an Event, a Condition or a log. A handler that needs the same lock would wait forever. To write to a pipe
    needs no lock. The handlers stay until the process ends, so that a second signal does not change the exit code.

    Source: Python's ``signal`` module, "Execution of Python signal handlers"; signal-safety(7).
    """

    def __init__(self) -> None:
        """Create the pipe. Signals are handled after `listen`."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def listen(self) -> StopSignal:
        """Install the signal handlers. Call it again after a library has replaced them. Main thread only."""
        for number in _STOPS:
            signal.signal(number, self._heard)
        return self

    def set(self) -> None:
        """Request a stop. Any thread may call this."""
        with suppress(BlockingIOError):  # the pipe is full, so the stop is already requested
            os.write(self._writer, b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Return True if a stop is requested. Wait for it for at most ``timeout_s``."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def event(self) -> asyncio.Event:
        """Return an event for the running event loop that is set from the stop request on."""
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

    Nothing happens without NOTIFY_SOCKET, or in a child of `runtime.supervisor`, which notifies for all its children.
    An error is ignored, because the NameServer works without the notification.
    """
    path = environ.get("NOTIFY_SOCKET", "")
    if not path or SUPERVISED in environ:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # the abstract namespace, unix(7)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(b"READY=1", address)


def refusal(error: RoutelakeError) -> int:
    """Print the reason why the process exits, in one line, and return the exit code."""
    print(f"routelake: {error}", file=sys.stderr)
    return EXIT_SETUP if isinstance(error, SetupError) else EXIT_FAILED


def run_to_end(main: Callable[[], object]) -> NoReturn:
    """Run a program, then exit: with the code of its SystemExit, 0 without SystemExit, or 1 after another exception."""
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
    """Flush all output, then exit immediately with this code.

    Threads of native libraries (Arrow, delta-rs) still run while the interpreter frees the objects that they use. On a
    lake of 870 files, seven of eight exits after an error ended in a segmentation fault. So the interpreter does not
    free its objects.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the reader is closed, the disk is full, or there is no stream
            code = code or EXIT_FAILED
    os._exit(code)

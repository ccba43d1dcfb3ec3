# SPDX-License-Identifier: Apache-2.0
"""Rules for child processes: they end with their parent, and have a lower priority than serving processes."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from runtime.procfs import stat_fields, threads_below
from runtime.secrets import without_secrets
from runtime.supervised_tasks import critical_thread

SUPERVISED: Final = "ROUTELAKE_SUPERVISED"
"""Environment variable of a supervised child. Its value is the pid of the parent, which holds the input pipe."""

ORPHANS_END_S: Final = 30.0
"""Maximum time that a start waits for children of a killed supervisor, in seconds. A gateway drains for 8 s."""

SERVED: Final = 0
"""File descriptor of the socket in a process that `spawn` started."""

_PR_SET_PDEATHSIG: Final = 1

_NICENESS: Final = 5
"""Niceness of processes that do not answer requests. It makes a difference only if all processors are busy."""


def on_parent_exit(stop: Callable[[], None]) -> None:
    """In a supervised child, call ``stop`` from a separate thread after the parent has ended.

    The parent holds the other end of the standard input. If the parent is killed, even by SIGKILL, the pipe closes.
    """
    if SUPERVISED not in os.environ:
        return

    def watch() -> None:
        # Not sys.stdin: this thread would hold its lock, which aborts the interpreter at shutdown.
        while os.read(0, 1):
            pass
        stop()

    critical_thread(watch, "parent-watch").start()


def wait_for_orphans(data_dir: Path, say: Callable[[str], None], limit_s: float = ORPHANS_END_S) -> None:
    """Wait until the children of a killed supervisor have ended, because they hold ports and the lake until then.

    Args:
        data_dir: Data directory of the children.
        say: Callback for one message, if such children run.
        limit_s: Maximum wait, in seconds. If a child still holds a port or the lake afterwards, later errors name it.
    """
    if SUPERVISED in os.environ:
        return
    end_s, said = time.monotonic() + limit_s, False
    while (found := _orphans(data_dir.resolve())) and time.monotonic() < end_s:
        if not said:
            said = True
            say(f"waiting for processes of a killed `serve` to end: {', '.join(map(str, found))}")
        time.sleep(0.1)


def _orphans(data_dir: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # the process has just ended, or belongs to another user
            environment = (process / "environ").read_bytes().split(b"\0")
            parent = next((text for text in environment if text.startswith(f"{SUPERVISED}=".encode())), b"")
            if not parent or int(parent.partition(b"=")[2]) == int(stat_fields(process / "stat")[1]):
                continue
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"cli.child" not in words or b"--data-dir" not in words:  # a child's own children end with it
                continue
            named = os.fsdecode(words[words.index(b"--data-dir") + 1])
            if ((process / "cwd").readlink() / named).resolve() == data_dir:
                found.append(int(process.name))
    return sorted(found)


def spawn(module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that serves only this process. It runs ``main()`` of a module.

    The process has its own session. So a terminal's Ctrl-C does not reach it, and it does not use the gateway's share
    of the processor (`give_way`).

    The process ignores SIGTERM and SIGINT, because it ends with its parent.

    Args:
        module: Name of the module.

    Returns:
        The process, and one end of a stream socket. The other end is the standard input of the process (`SERVED`). The
        process should exit when it reads the end of the stream, because then its parent has ended.

    Raises:
        OSError: The process cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            # If all processes get a stop signal, only the parent reacts. It writes what it has accepted, and then the
            # process ends with it. The signals are ignored first, because the imports take a second.
            deaf = "from signal import *; signal(SIGTERM, SIG_IGN); signal(SIGINT, SIG_IGN)"
            command = [sys.executable, "-c", f"{deaf}; from {module} import main; main()"]
            environment = without_secrets(os.environ)
            return subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True, env=environment), ours
        except BaseException:
            ours.close()
            raise


def send(pipe: Connection, value: object) -> None:
    """Send a value to the process at the other end of a pipe, which reads it with ``Connection.recv``.

    This replaces ``Connection.send``. That leaves a view of a ``BytesIO`` in the traceback if the other end is closed.
    When the garbage collector meets the two in a cycle, Python 3.12.1 crashes, and Python 3.13 reports a BufferError.

    Raises:
        OSError: The other end is closed.
    """
    pipe.send_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def end_with_parent() -> None:
    """In a process from `spawn`, let the kernel kill the process when its parent thread ends (prctl, PR_SET_PDEATHSIG).

    The end of the stream shows the parent's end too, but only when the process reads. Until then it could still act for
    a parent that has ended.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def give_way() -> None:
    """Lower the priority of this process and its descendants, so that the gateway has the processor first.

    Linux may schedule by session first, and then a niceness counts only within a session (sched(7), "The autogroup
    feature"). So this process should have its own session. The priority of another session is not changed.
    """
    mine = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    for _ in range(2):  # the second pass finds threads that an unchanged thread has started during the first pass
        for thread in threads_below(os.getpid()):
            with suppress(OSError):  # the thread has just ended
                os.setpriority(os.PRIO_PROCESS, thread, mine)
    if os.getsid(0) != os.getpid():
        return
    for _ in range(50):
        try:
            Path("/proc/self/autogroup").write_text(str(_NICENESS), encoding="ascii")
        except BlockingIOError:
            time.sleep(0.1)  # the kernel accepts one such change in 0.1 s from users other than root
        except OSError:
            return  # the kernel does not have the feature
        else:
            return

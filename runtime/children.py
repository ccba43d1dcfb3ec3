# SPDX-License-Identifier: Apache-2.0
"""Rules for child processes: they end with their parent, and have a lower priority than serving processes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from runtime.procfs import stat_fields, threads_below
from runtime.secrets import without_secrets
from runtime.supervised_tasks import critical_thread

SUPERVISED: Final = "ROUTELAKE_SUPERVISED"
"""Environment variable that tells a child about the pipe on its standard input and the process at the other end."""

ORPHANS_END_S: Final = 30.0
"""How long a start waits for the children of a supervisor that was killed; a gateway drains for 8 s."""

SERVED: Final = 0
"""File descriptor of the socket in a process that `spawn` started."""

_PR_SET_PDEATHSIG: Final = 1

_NICENESS: Final = 5
"""Answers come first where several processes share a machine; on one with a core to spare it makes no difference."""


def on_parent_exit(stop: Callable[[], None]) -> None:
    """In a supervised child: call ``stop`` (from a thread of its own) when the parent is gone.

    The parent holds the other end of the standard input. When it is killed, even by SIGKILL, the pipe closes.
    """
    if SUPERVISED not in os.environ:
        return

    def watch() -> None:
        # Not sys.stdin: its lock, held by this thread, would abort the interpreter at shutdown.
        while os.read(0, 1):
            pass
        stop()

    critical_thread(watch, "parent-watch").start()


def wait_for_orphans(data_dir: Path, say: Callable[[str], None], limit_s: float = ORPHANS_END_S) -> None:
    """Wait until the children of a supervisor that was killed have ended: they hold ports and the lake until then.

    Args:
        data_dir: Theirs.
        say: Is told once, if there are any.
        limit_s: How long at most. Whoever holds something afterwards is named when that is wanted.
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
        with suppress(OSError, ValueError):  # it has just ended, or is another user's
            environment = (process / "environ").read_bytes().split(b"\0")
            parent = next((text for text in environment if text.startswith(f"{SUPERVISED}=".encode())), b"")
            if not parent or int(parent.partition(b"=")[2]) == int(stat_fields(process / "stat")[1]):
                continue
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"cli.child" not in words or b"--data-dir" not in words:  # a child of such a child ends with it
                continue
            named = os.fsdecode(words[words.index(b"--data-dir") + 1])
            if ((process / "cwd").readlink() / named).resolve() == data_dir:
                found.append(int(process.name))
    return sorted(found)


def spawn(module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that serves this one alone: ``main()`` of a module.

    It has a session of its own. So a terminal's Ctrl-C does not reach it, and it does not use up the gateway's share
    of the processor (`give_way`).

    SIGTERM and SIGINT are not for it: it ends with its parent.

    Args:
        module: Its name.

    Returns:
        The process, and one end of a stream socket. The other end is its standard input: `SERVED` there. It should end
        when it reads the end of the stream, for then this process is gone.

    Raises:
        OSError: It cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            # A stop of all processes at once is the parent's to hear: it goes on writing what it has accepted, and then
            # this ends with it. Before anything else: what is imported takes a second.
            deaf = "from signal import *; signal(SIGTERM, SIG_IGN); signal(SIGINT, SIG_IGN)"
            command = [sys.executable, "-c", f"{deaf}; from {module} import main; main()"]
            environment = without_secrets(os.environ)
            return subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True, env=environment), ours
        except BaseException:
            ours.close()
            raise


def end_with_parent() -> None:
    """In a process that `spawn` started: be killed when the thread that did so ends, by prctl(2), PR_SET_PDEATHSIG.

    The end of the stream tells it, too, but only when it reads: it may wait for something else then, and act for one
    that is gone afterwards.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def give_way() -> None:
    """Let the gateway have the processor first: this process and all that it has started.

    Linux may weigh sessions before processes, and then a niceness counts within a session alone (sched(7), "The
    autogroup feature"). So this process should have a session of its own; somebody else's is left as it is.
    """
    mine = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    for _ in range(2):  # a thread that was begun meanwhile has it from the one that began it, or is found now
        for thread in threads_below(os.getpid()):
            with suppress(OSError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, thread, mine)
    if os.getsid(0) != os.getpid():
        return
    for _ in range(50):
        try:
            Path("/proc/self/autogroup").write_text(str(_NICENESS), encoding="ascii")
        except BlockingIOError:
            time.sleep(0.1)  # the kernel takes one such change in so long, from all who are not root
        except OSError:
            return  # no such feature
        else:
            return

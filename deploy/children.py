"""How child processes behave: they end with their parent, and leave the processor to those who answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SUPERVISED: Final = "ROUTELAKE_SUPERVISED"
"""Environment variable that tells a child about the pipe on its standard input."""

_NICENESS: Final = 5
"""Answers come first where several processes share a machine; on one with a core to spare it makes no difference."""


def on_parent_exit(stop: Callable[[], None]) -> None:
    """In a supervised child: call ``stop`` (from a thread of its own) when the parent is gone.

    The parent holds the other end of the standard input. When it is killed, even by SIGKILL, the pipe closes.
    """
    if os.environ.get(SUPERVISED) != "1":
        return

    def watch() -> None:
        # Not sys.stdin: its lock, held by this thread, would abort the interpreter at shutdown.
        while os.read(0, 1):
            pass
        stop()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def give_way() -> None:
    """Let the gateway have the processor first.

    Linux may weigh sessions before processes, and then a niceness counts within a session alone (sched(7), "The
    autogroup feature"). So this process should have a session of its own; somebody else's is left as it is.
    """
    os.nice(_NICENESS)
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

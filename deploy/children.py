"""A child process that ends with its parent: the parent holds the other end of its standard input.

When the supervisor is killed, even by SIGKILL, the pipe closes and the child stops; nothing is left behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

SUPERVISED: Final = "ROUTELAKE_SUPERVISED"
"""Environment variable that tells a child about the pipe on its standard input."""


def on_parent_exit(stop: Callable[[], None]) -> None:
    """In a supervised child: call ``stop`` (from a thread of its own) when the parent is gone."""
    if os.environ.get(SUPERVISED) != "1":
        return

    def watch() -> None:
        # Not sys.stdin: its lock, held by this thread, would abort the interpreter at shutdown.
        while os.read(0, 1):
            pass
        stop()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()

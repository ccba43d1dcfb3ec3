# SPDX-License-Identifier: Apache-2.0
"""Namespaces of a run's own: its mounts, and its network, so that runs side by side share no port.

Linux gives them to root, and to others in a user namespace where that is allowed. Without them a run has what the machine
has, and does without the faults that need them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from dev.support.namespaces import unshare

_INSIDE: Final = "TORTURE_INSIDE"


def has(kind: str) -> bool:
    """Return whether this process has a namespace of its own already: "mount" or "net"."""
    return kind in os.environ.get(_INSIDE, "").split(",")


def go_inside(arguments: Sequence[str], kinds: Sequence[str]) -> NoReturn:
    """Run `python -m dev.fault_injection` again, in namespaces of its own. What it takes from a network it must have by now."""
    command = [*unshare(kinds), sys.executable, "-m", "dev.fault_injection", *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: ",".join(kinds)})


def begin() -> None:
    """The loopback of a network that is new.

    Raises:
        subprocess.CalledProcessError: it cannot be had.
    """
    if has("net"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

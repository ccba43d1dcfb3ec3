# SPDX-License-Identifier: Apache-2.0
"""Namespaces of a run's own: its mounts, and its network, so that runs side by side share no port.

Linux gives them to root, and to others in a user namespace where that is allowed. Without them a run has what the machine
has, and does without the faults that need them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_INSIDE: Final = "TORTURE_INSIDE"
_KINDS: Final = ("mount", "net")


def has(kind: str) -> bool:
    """Whether this process has a namespace of its own already: "mount" or "net"."""
    return kind in os.environ.get(_INSIDE, "").split(",")


def possible_kinds() -> tuple[str, ...]:
    """Of which kinds this process may have namespaces. "net" needs iproute2, too: its loopback is down at first."""
    if shutil.which("unshare") is None:
        return ()
    wanted = _KINDS if shutil.which("ip") is not None else _KINDS[:1]
    for kinds in (wanted, _KINDS[:1]):
        if subprocess.run([*_unshare(kinds), "true"], capture_output=True, check=False).returncode == 0:
            return kinds
    return ()


def go_inside(arguments: Sequence[str], kinds: Sequence[str]) -> NoReturn:
    """Run `python -m tests.robustness` again, in namespaces of its own. What it takes from a network it must have by now."""
    command = [*_unshare(kinds), sys.executable, "-m", "tests.robustness", *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: ",".join(kinds)})


def begin() -> None:
    """The loopback of a network that is new.

    Raises:
        subprocess.CalledProcessError: it cannot be had.
    """
    if has("net"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _unshare(kinds: Sequence[str]) -> list[str]:
    return ["unshare", *(f"--{kind}" for kind in kinds), *(["--map-root-user"] if os.geteuid() else [])]

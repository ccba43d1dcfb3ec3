# SPDX-License-Identifier: Apache-2.0
"""Mounts and a network that only one command and its children have, by util-linux's unshare.

Linux gives them to root, and to others in a user namespace where that is allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

_KINDS: Final = ("mount", "net")


def possible_kinds() -> tuple[str, ...]:
    """Return the kinds of namespaces that this process may have. "net" needs iproute2: its loopback starts down."""
    if shutil.which("unshare") is None:
        return ()
    wanted = _KINDS if shutil.which("ip") is not None else _KINDS[:1]
    for kinds in (wanted, _KINDS[:1]):
        if subprocess.run([*unshare(kinds), "true"], capture_output=True, check=False).returncode == 0:
            return kinds
    return ()


def unshare(kinds: Sequence[str]) -> list[str]:
    """The command before one that is to have them."""
    return ["unshare", *(f"--{kind}" for kind in kinds), *(["--map-root-user"] if os.geteuid() else [])]

# SPDX-License-Identifier: Apache-2.0
"""The version of this program and the command that starts it: what differs between a clone and a wheel.

`pyproject.toml` is the one place where the version is written. Only a clone has that file.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

_PROJECT: Final = Path(__file__).resolve().parent.parent / "pyproject.toml"

IS_CLONE: Final = _PROJECT.exists()
"""False in a wheel."""

PROGRAM: Final = "./routelake" if IS_CLONE else "routelake"
"""The command as a user types it. Usage lines, errors and log lines begin each command with it."""


@cache
def release() -> str:
    """Such as ``0.1.0``: what pyproject.toml says in a clone, what the wheel says where one is installed."""
    if not IS_CLONE:
        return metadata.version("routelake")
    version: str = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    return version

# SPDX-License-Identifier: Apache-2.0
"""The version of this program and the command that starts it. Both depend on whether it runs from a clone or a wheel.

Only `pyproject.toml` has the version, and only a clone has that file.
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
    """The version, such as ``0.1.0``: from pyproject.toml in a clone, otherwise from the installed wheel."""
    if not IS_CLONE:
        return metadata.version("routelake")
    version: str = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    return version

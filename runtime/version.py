# SPDX-License-Identifier: Apache-2.0
"""The version of this program. `pyproject.toml` is the one place where it is written."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


@cache
def release() -> str:
    """Such as ``0.1.0``: what pyproject.toml says in a clone, what the wheel says where one is installed."""
    if not _PROJECT.exists():
        return metadata.version("routelake")
    version: str = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    return version

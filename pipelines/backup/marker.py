# SPDX-License-Identifier: Apache-2.0
"""The marker of a restore that is at work, or was cut off: nothing may start on what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from schemas.errors import SetupError

MARKER: Final = "restore.json"
"""In the data directory, from before the first file is moved until the last one is proved."""


def write_marker(data_dir: Path, backup: Path, aside: list[str]) -> None:
    """Mark a restore. ``aside`` are the folders that hold what was there."""
    text = json.dumps({"backup": str(backup.absolute()), "aside": aside})
    temporary = data_dir / f"{MARKER}.tmp"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(data_dir / MARKER)


def read_marker(data_dir: Path) -> dict[str, object] | None:
    """What `write_marker` has written; None without a mark."""
    try:
        text = (data_dir / MARKER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def refuse_unfinished_restore(data_dir: Path) -> None:
    """Called before anything starts in a data directory.

    Raises:
        SetupError: A restore was cut off there.
    """
    if (found := read_marker(data_dir)) is not None:
        raise SetupError(
            f"a restore into {data_dir} is at work or was cut off. If it was cut off, give it again: "
            f"`./routelake restore {found.get('backup', 'BACKUP')} --data-dir {data_dir}`. What was there before is in "
            f"{found.get('aside', 'before-restore-*')}."
        )

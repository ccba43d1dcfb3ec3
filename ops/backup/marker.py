# SPDX-License-Identifier: Apache-2.0
"""The marker of a restore that is at work, or was cut off: nothing may start on what it leaves."""

from __future__ import annotations

import errno
import json
import os
import secrets
from pathlib import Path
from typing import Final

from runtime.version import PROGRAM
from schemas.errors import SetupError

MARKER: Final = "restore.json"
"""In the data directory, from before the first file is moved until the last one is proved."""


def write_marker(data_dir: Path, backup: Path, aside: list[str]) -> None:
    """Mark a restore. ``aside`` are the folders that hold what was there."""
    text = json.dumps({"backup": str(backup.absolute()), "aside": aside})
    temporary = data_dir / f"{MARKER}.{secrets.token_hex(8)}"
    # Never through a link that was put there.
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    with os.fdopen(made, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(data_dir / MARKER)


def read_marker(data_dir: Path) -> dict[str, object] | None:
    """Read the mark of `write_marker`; None without a mark."""
    try:
        opened = os.open(data_dir / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # no mark of ours, but somebody's: nothing starts on it
            return {}
        raise
    with os.fdopen(opened, "rb") as file:
        try:
            found = json.loads(file.read())
        except (ValueError, OSError):
            found = {}
    return found if isinstance(found, dict) else {}


def refuse_unfinished_restore(data_dir: Path) -> None:
    """Called before anything starts in a data directory.

    Raises:
        SetupError: A restore was cut off there.
    """
    if (found := read_marker(data_dir)) is not None:
        raise SetupError(
            f"a restore into {data_dir} is running or was interrupted. If it was interrupted, run it again: "
            f"`{PROGRAM} restore {found.get('backup', 'BACKUP')} --data-dir {data_dir}`. The previous files are in "
            f"{found.get('aside', 'before-restore-*')}."
        )

# SPDX-License-Identifier: Apache-2.0
"""Marker of a running or interrupted restore, which prevents every start in the data directory."""

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
"""File in the data directory. It exists from before the first file is moved until the last one is verified."""


def write_marker(data_dir: Path, backup: Path, aside: list[str]) -> None:
    """Write the marker of a restore. ``aside`` are the folders with the previous files."""
    text = json.dumps({"backup": str(backup.absolute()), "aside": aside})
    temporary = data_dir / f"{MARKER}.{secrets.token_hex(8)}"
    # Without following a link that another user may have created.
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(data_dir / MARKER)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_marker(data_dir: Path) -> dict[str, object] | None:
    """Read the marker of `write_marker`. None without a marker."""
    try:
        opened = os.open(data_dir / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link by another program also prevents a start
            return {}
        raise
    with os.fdopen(opened, "rb") as file:
        try:
            found = json.loads(file.read())
        except (ValueError, OSError):
            found = {}
    return found if isinstance(found, dict) else {}


def refuse_unfinished_restore(data_dir: Path) -> None:
    """Refuse to start in a data directory with an unfinished restore.

    Raises:
        SetupError: A restore was interrupted there.
    """
    if (found := read_marker(data_dir)) is not None:
        raise SetupError(
            f"a restore into {data_dir} is running or was interrupted. If it was interrupted, run it again: "
            f"`{PROGRAM} restore {found.get('backup', 'BACKUP')} --data-dir {data_dir}`. The previous files are in "
            f"{found.get('aside', 'before-restore-*')}."
        )

# SPDX-License-Identifier: Apache-2.0
"""Names of folders that tables, event log and Spark can be in; a module, because several groups of options ask it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from schemas.errors import SetupError

_MOST_BYTES_OF_NAME: Final = 255
_MOST_BYTES_OF_PATH: Final = 400
"""SQLite opens no path of more than about 490 bytes, with what it adds to the names of its own files."""
_MOST_SHOWN: Final = 200
_NOT_PRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNUSABLE: Final = (
    (re.compile(r"[\ud800-\udfff]"), "has bytes that are not UTF-8, which Delta tables cannot be under"),
    (re.compile(r"[\x00-\x1f\x7f-\x9f]"), "has a control character, which Delta tables cannot be under"),
    (re.compile(r"\\"), "has a backslash, which Delta tables read as /"),
    (re.compile(r","), "has a comma, where Spark divides a list of folders"),
    (re.compile(r"[\[\]^|]"), "has one of [ ] ^ |, which delta-rs takes for a fault in a host's name"),
    (re.compile("%[0-9A-Fa-f]{2}"), "has a % with two digits, which Delta tables read as one character"),
)


def check_path(path: Path, option: str) -> None:
    """Refuse a folder whose name tables, event log or Spark cannot use: each reads some characters as others.

    Args:
        path: Which; also what it leads to by links is looked at.
        option: That names it.

    Raises:
        SetupError: They cannot.
    """
    try:
        places = (path.absolute(), path.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise SetupError(f"{option} {_shown(path)} cannot be used: {_why(error)}. Choose another folder.") from error
    for place in places:
        what = next((why for pattern, why in _UNUSABLE if pattern.search(str(place))), None)
        if what is None and not str(place).isascii() and sys.getfilesystemencoding() != "utf-8":
            what = "has characters that this locale writes otherwise than UTF-8 does (set LC_ALL=C.UTF-8)"
        if what is None and any(len(os.fsencode(part)) > _MOST_BYTES_OF_NAME for part in place.parts):
            what = f"has a name of more than {_MOST_BYTES_OF_NAME} bytes"
        if what is None and len(os.fsencode(place)) > _MOST_BYTES_OF_PATH:
            what = (
                f"has more than {_MOST_BYTES_OF_PATH} bytes, and files in it would have longer names than SQLite opens"
            )
        if what is not None:
            via = "" if place == path else f", the path {_shown(place)},"
            raise SetupError(f"{option} {_shown(path)}{via} {what}. Choose another folder.")


def _shown(path: Path) -> str:
    """For a message of one line, whatever is in it and however long it is."""
    text = ascii(str(path)) if _NOT_PRINTABLE.search(str(path)) else repr(str(path))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

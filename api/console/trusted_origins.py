# SPDX-License-Identifier: Apache-2.0
"""Which other routelakes the console offers to go to: a file of names and addresses.

A line each, ``NAME URL``; blank lines and what follows a ``#`` at a line's start are nothing::

    production  https://ns1.example:8080
    staging     http://10.0.0.7:8080/
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from schemas.errors import SetupError

_MOST: Final = 1000


class Site(NamedTuple):
    """A routelake: how it is called, and the address of its HTTP API, without a slash at the end."""

    name: str
    url: str


def read_sites(path: Path) -> tuple[Site, ...]:
    """The list that a file holds, in its order.

    Raises:
        SetupError: it cannot be read, or a line is no name and address.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the console's list of routelakes, {path}, cannot be read: {error}") from error
    found: dict[str, Site] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}, line {number}"
        if len(words) != 2 or not _is_address(words[1]):
            raise SetupError(f"{where}: expected NAME http://HOST:PORT.")
        if words[0] in found:
            raise SetupError(f"{where}: {words[0]!r} is there twice.")
        found[words[0]] = Site(words[0], words[1].rstrip("/"))
    if len(found) > _MOST:
        raise SetupError(f"{path} names {len(found)} routelakes: {_MOST} are the most.")
    return tuple(found.values())


def _is_address(url: str) -> bool:
    """Whether it is an address that a link may lead to. Nothing but http and https: no script hides in a link."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc

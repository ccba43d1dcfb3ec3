# SPDX-License-Identifier: Apache-2.0
"""What the URL of an event log says. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from schemas.errors import SetupError

URL_FORMS: Final = "sqlite:///absolute/path.db or kafka://host:port[,host:port]/topic"


def is_kafka(url: str) -> bool:
    """Whether a URL names a Kafka log."""
    return url.startswith("kafka:")


def sqlite_path(url: str) -> Path:
    """The file of a ``sqlite://`` URL.

    Raises:
        SetupError: the path is not absolute.
    """
    path = url.removeprefix("sqlite://")
    if path == url or not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise SetupError(f"{url!r}: a SQLite log needs the absolute path of a file, like sqlite:///var/lib/log.db")
    return Path(path)


def parse_url(url: str) -> tuple[list[str], str]:
    """``kafka://host:port[,host:port]/topic`` into addresses and topic.

    Raises:
        SetupError: it has another form.
    """
    match = re.fullmatch(r"kafka://([^/]+)/([A-Za-z0-9._-]{1,249})", url)
    addresses = match[1].split(",") if match else []
    if match is None or match[2] in (".", "..") or not all(map(_is_address, addresses)):
        raise SetupError(f"{url!r}: a Kafka log is named like kafka://host:9092,host:9092/topic")
    return addresses, match[2]


def _is_address(text: str) -> bool:
    match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    return match is not None and 0 < int(match[2]) < 65536

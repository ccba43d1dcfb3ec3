# SPDX-License-Identifier: Apache-2.0
"""Parser of event log URLs. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from schemas.errors import SetupError

URL_FORMS: Final = "sqlite:///absolute/path.db or kafka://host:port[,host:port]/topic"


def is_kafka(url: str) -> bool:
    """Return True if a URL names a Kafka log."""
    return url.startswith("kafka:")


def sqlite_path(url: str) -> Path:
    """The path in a ``sqlite://`` URL.

    Raises:
        SetupError: The path is not absolute.
    """
    path = url.removeprefix("sqlite://")
    if path == url or not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise SetupError(
            f"{url!r}: a SQLite event log needs the absolute path of a file, for example sqlite:///var/lib/log.db"
        )
    return Path(path)


class KafkaPlace(NamedTuple):
    """Location of a Kafka log.

    Attributes:
        bootstrap: ``host:port`` of some brokers.
        topic: Name of the topic.
        config: Absolute path of a file of Kafka client properties. Empty: no TLS and no authentication.
    """

    bootstrap: list[str]
    topic: str
    config: str


def parse_url(url: str) -> KafkaPlace:
    """Parse ``kafka://host:port[,host:port]/topic[?config=/file]``. The path is taken literally.

    Raises:
        SetupError: The URL has another form.
    """
    match = re.fullmatch(r"kafka://([^/]+)/([A-Za-z0-9._-]{1,249})(?:\?config=(/.+))?", url)
    addresses = match[1].split(",") if match else []
    if match is None or match[2] in (".", "..") or not all(map(_is_address, addresses)):
        raise SetupError(f"{url!r}: a Kafka event log has the form kafka://host:9092,host:9092/topic")
    return KafkaPlace(addresses, match[2], match[3] or "")


def first_offset(topic: str) -> int:
    """The log's offset for Kafka's offset 0: the number in a name like ``events.from-400124``, or 0 (docs/adr/0018)."""
    match = re.search(r"\.from-([0-9]{1,18})$", topic)
    return int(match[1]) if match else 0


def with_config(url: str, config: Path | None) -> str:
    """Add the path of a properties file to the URL of a log, so that every process that opens the log finds the file.

    Raises:
        SetupError: The log is not in Kafka, or its URL already names another file.
    """
    if config is None:
        return url
    path = str(config.absolute())
    if not is_kafka(url):
        raise SetupError(
            f"--event-log-config {config} is for an event log in Kafka. Set --event-log kafka://host:port/topic too."
        )
    named = parse_url(url).config
    if named not in ("", path):
        raise SetupError(f"--event-log names {named}, and --event-log-config {path}. Remove one of them.")
    return url if named else f"{url}?config={path}"


def _is_address(text: str) -> bool:
    match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    return match is not None and 0 < int(match[2]) < 65536

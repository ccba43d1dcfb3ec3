"""Which event log a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipelines.log.base import EventLog
from pipelines.log.memory import MemoryLog
from pipelines.log.sqlite import SqliteLog
from schemas.errors import SetupError

URL_FORMS: Final = "sqlite:///absolute/path.db, kafka://host:port[,host:port]/topic or memory:"


def open_log(url: str) -> EventLog:
    """Open the log a URL names, and make it if it does not exist.

    Args:
        url: one of `URL_FORMS`. A sqlite path is taken literally, without percent-decoding.

    Raises:
        SetupError: no such kind of log, or it cannot be used as it is; the message says what to do.
        UnavailableError: Kafka cannot be reached, or another process holds the file.
    """
    if url == "memory:":
        return MemoryLog()
    if url.startswith("sqlite:"):
        return SqliteLog(sqlite_path(url))
    if url.startswith("kafka:"):
        # Not needed, hence not loaded, where SQLite is the log.
        from pipelines.log.kafka import KafkaLog, parse_url

        return KafkaLog(*parse_url(url))
    raise SetupError(f"{url!r} names no event log. Use {URL_FORMS}.")


def sqlite_path(url: str) -> Path:
    """The file of a ``sqlite://`` URL.

    Raises:
        SetupError: the path is not absolute.
    """
    path = url.removeprefix("sqlite://")
    if path == url or not path.startswith("/") or path.endswith("/"):
        raise SetupError(f"{url!r}: a SQLite log needs the absolute path of a file, like sqlite:///var/lib/log.db")
    return Path(path)

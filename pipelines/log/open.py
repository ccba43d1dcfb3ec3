# SPDX-License-Identifier: Apache-2.0
"""Which event log a URL names."""

from __future__ import annotations

from pipelines.log.base import EventLog
from pipelines.log.memory import MemoryLog
from pipelines.log.sqlite import SqliteLog
from pipelines.log.urls import URL_FORMS, parse_url, sqlite_path
from schemas.errors import SetupError


def open_log(url: str) -> EventLog:
    """Open the log a URL names, and make it if it does not exist.

    Args:
        url: one of `URL_FORMS`, or ``memory:`` for a program of one process. A sqlite path is taken literally, without
            percent-decoding.

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
        from pipelines.log.kafka import KafkaLog

        return KafkaLog(*parse_url(url))
    raise SetupError(f"{url!r} names no event log. Use {URL_FORMS}.")

# SPDX-License-Identifier: Apache-2.0
"""Open the event log that a URL names. Kafka's modules are loaded only for a log in Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventlog.base import EventLog, LogReader, LogRecord
from eventlog.sqlite.log import SqliteLog, SqliteReader
from eventlog.sqlite.tail import SqliteTail, sqlite_records
from eventlog.stamps import Stamps
from eventlog.tail import LogTail
from eventlog.urls import URL_FORMS, is_kafka, parse_url, sqlite_path
from schemas.errors import SetupError


def open_log(url: str, stamps: Stamps | None = None) -> EventLog:
    """Open the log a URL names, and make it if it does not exist.

    Args:
        url: One of `URL_FORMS`. A sqlite path is taken literally, without percent-decoding.
        stamps: gives event times to a log that is stamped here; None: by this machine's clock.

    Raises:
        SetupError: no such kind of log, or it cannot be used as it is; the message says what to do.
        UnavailableError: Kafka cannot be reached, or another process holds the file.
    """
    if url.startswith("sqlite:"):
        return SqliteLog(sqlite_path(url), stamps=stamps)
    if is_kafka(url):
        from eventlog.kafka.log import KafkaLog

        return KafkaLog(*parse_url(url))
    raise SetupError(f"{url!r} is not an event log. Use {URL_FORMS}.")


def open_tail(url: str) -> LogTail:
    """Open a log that is there to follow it.

    Raises:
        SetupError, UnavailableError: as `open_log`.
    """
    if is_kafka(url):
        from eventlog.kafka.tail import KafkaTail

        return KafkaTail(*parse_url(url))
    return SqliteTail(sqlite_path(url))


def records_between(url: str, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
    """The records from ``start`` up to, not including, ``end``, in pieces of bounded size.

    Raises:
        SetupError: some were deleted.
        UnavailableError: the log cannot be read now.
    """
    if is_kafka(url):
        from eventlog.kafka.tail import kafka_records

        return kafka_records(url, start, end)
    return sqlite_records(sqlite_path(url), start, end)


def close_readers(url: str) -> None:
    """Release what `records_between` has kept for its next call."""
    if is_kafka(url):
        from eventlog.kafka.tail import close_reader

        close_reader(url)


def open_reader(url: str) -> LogReader:
    """A reader of an existing log, which changes nothing and proves nothing of it.

    Raises:
        SetupError: no such kind of log, or there is no such file.
        UnavailableError: it cannot be reached, or there is no such topic.
    """
    if is_kafka(url):
        from eventlog.kafka.reader import KafkaReader

        return KafkaReader(*parse_url(url))
    return SqliteReader(sqlite_path(url))

# SPDX-License-Identifier: Apache-2.0
"""Access to the event log that a URL names. Kafka's modules are loaded only for a log in Kafka."""

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
    """Open the log that a URL names, and create it if it does not exist.

    Args:
        url: One of `URL_FORMS`. A SQLite path is taken literally, without percent-decoding.
        stamps: Source of event times for a SQLite log. None: this machine's clock.

    Raises:
        SetupError: The URL has an unknown form, or the log cannot be used as it is. The message has the remedy.
        UnavailableError: Kafka cannot be reached, or another process holds the file.
    """
    if url.startswith("sqlite:"):
        return SqliteLog(sqlite_path(url), stamps=stamps)
    if is_kafka(url):
        from eventlog.kafka.log import KafkaLog

        return KafkaLog(*parse_url(url))
    raise SetupError(f"{url!r} is not an event log. Use {URL_FORMS}.")


def open_tail(url: str) -> LogTail:
    """Open an existing log in order to follow it.

    Raises:
        SetupError, UnavailableError: As `open_log`.
    """
    if is_kafka(url):
        from eventlog.kafka.tail import KafkaTail

        return KafkaTail(*parse_url(url))
    return SqliteTail(sqlite_path(url))


def records_between(url: str, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
    """The records from ``start`` up to, not including, ``end``, in pieces of bounded size.

    Raises:
        SetupError: Some of the records were deleted.
        UnavailableError: The log cannot be read now.
    """
    if is_kafka(url):
        from eventlog.kafka.tail import kafka_records

        return kafka_records(url, start, end)
    return sqlite_records(sqlite_path(url), start, end)


def close_readers(url: str) -> None:
    """Release the reader that `records_between` keeps for its next call."""
    if is_kafka(url):
        from eventlog.kafka.tail import close_reader

        close_reader(url)


def open_reader(url: str) -> LogReader:
    """Open a reader of an existing log. The reader does not change the log and does not check it.

    Raises:
        SetupError: The URL has an unknown form, or the file does not exist.
        UnavailableError: The log cannot be reached, or the topic does not exist.
    """
    if is_kafka(url):
        from eventlog.kafka.reader import KafkaReader

        return KafkaReader(*parse_url(url))
    return SqliteReader(sqlite_path(url))

# SPDX-License-Identifier: Apache-2.0
"""Errors that routelake raises on purpose: the root, and the errors of more than one package.

    RoutelakeError
    ├── BadRequestError          the peer's fault: refused, never on the log      HTTP 400, code SYSTEM_ERROR
    │   └── TooLargeError        more bytes than a limit allows                   HTTP 413, code SYSTEM_ERROR
    ├── AccessDeniedError        the sender lacks permission                      HTTP 401, 403, code NO_PERMISSION
    ├── NotFoundError            no such topic, namespace, ...                    HTTP 404, its own ResponseCode
    ├── HistoryError             a past that cannot be read
    │   ├── VacuumedError        older than the oldest recorded epoch             HTTP 410
    │   ├── BeforeHistoryError   before the first epoch                           HTTP 404
    │   ├── FutureEpochError     not written yet                                  HTTP 404
    │   └── FutureTimeError      a time that has not come yet                     HTTP 404
    ├── UnavailableError         try again: log or view not there yet             HTTP 503, code SYSTEM_BUSY
    │   └── QuotaError           try again later: the peer has done too much      HTTP 429, code SYSTEM_BUSY
    ├── InDoubtError             try again: it may be on the log, or may not      HTTP 503, code SYSTEM_BUSY
    ├── EventDecodeError         a log record that is no event: quarantined
    ├── ProtocolError            bytes that are no remoting frame: connection closed
    └── SetupError               the operator must do something first: exit code 2

Errors of one package are defined there: `remoting.errors` (failed requests to other servers), `clients.route.errors`,
`remoting.codec.commands.RefusedError`, `eventlog.kafka.access.settings`, `lake.delta.log.DamagedTableError`,
`lake.lease.LeaseLostError`, `pipelines.spark_sql.StatementError`, `api.http.problems.Problem`, `runtime.jars.JarError`.

Callers decide by type and fields. ``str()`` is a sentence for people, and no program reads it.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES: Final = re.compile(r"\n(stack backtrace:|\s+0: ).*", re.DOTALL)
"""Stack frames of Rust, which RUST_BACKTRACE adds."""


class RoutelakeError(Exception):
    """Root of the errors. ``fields`` are the keyword arguments of its construction."""

    def __init__(self, message: str = "", /, **fields: object) -> None:
        self.fields = fields
        super().__init__(message or "; ".join(f"{name}: {value}" for name, value in fields.items()))


class BadRequestError(RoutelakeError):
    """The request cannot be accepted. The message names the field and the rule."""


class TooLargeError(BadRequestError):
    """The request has more bytes than allowed. ``limit_bytes`` is the limit."""


class AccessDeniedError(RoutelakeError):
    """The sender lacks permission. ``is_authenticated`` is True if it has an account."""

    def __init__(self, message: str, /, *, is_authenticated: bool) -> None:
        self.is_authenticated = is_authenticated
        super().__init__(message, is_authenticated=is_authenticated)


class NotFoundError(RoutelakeError):
    """The requested object does not exist. ``code`` is RocketMQ's ResponseCode for it."""

    def __init__(self, message: str, /, *, code: int, **fields: object) -> None:
        self.code = code
        super().__init__(message, code=code, **fields)


class HistoryError(RoutelakeError):
    """A past version that cannot be read."""


class VacuumedError(HistoryError):
    """The version is older than the record. ``oldest_epoch`` and ``oldest_time`` name the oldest recorded commit."""


class BeforeHistoryError(HistoryError):
    """The time is before the first commit. ``first_epoch`` and ``first_time`` name that commit."""


class OtherLakeError(HistoryError):
    """The cursor or token is of another lake, or of this one before a restore."""


class FutureEpochError(HistoryError):
    """The epoch has not been committed yet."""


class FutureTimeError(HistoryError):
    """The time is in the future. ``now`` is the gateway's time."""


class UnavailableError(RoutelakeError):
    """The event log or the tables cannot be reached now. Nothing was accepted."""


class QuotaError(UnavailableError):
    """One peer, or all peers together, exceed a quota. ``quota`` is its name, ``retry_after_s`` a time to wait."""

    def __init__(self, message: str, /, *, quota: str, retry_after_s: int) -> None:
        self.quota = quota
        self.retry_after_s = retry_after_s
        super().__init__(message, quota=quota, retry_after_s=retry_after_s)


class InDoubtError(RoutelakeError):
    """An append failed after it was sent. It is unknown whether its events are on the log, until the log is read.

    To append them again is harmless: the state machine applies a repeated event as it would a repeated request.
    """


class EventDecodeError(RoutelakeError):
    """A log record that this version cannot read as an event."""


class ProtocolError(RoutelakeError):
    """Bytes that are not a remoting frame. The connection is closed, as the stock NameServer does."""


class SetupError(RoutelakeError):
    """A start cannot continue. The message names what the operator can do."""


def one_line(error: BaseException) -> str:
    """Return a library's error message without colours, line breaks and Rust's stack, so that it fits on one line."""
    return " ".join(_FRAMES.sub("", _ESCAPES.sub("", str(error))).split()) or type(error).__name__

# SPDX-License-Identifier: Apache-2.0
"""The errors that routelake raises on purpose: their root, and those of more than one package.

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

Errors of one package stand there: `remoting.errors` (what goes wrong when this side asks), `clients.route.errors`,
`remoting.codec.commands.RefusedError`, `eventlog.kafka.access.settings`, `lake.delta.log.DamagedTableError`,
`lake.lease.LeaseLostError`, `pipelines.spark_sql.StatementError`, `api.http.problems.Problem`, `runtime.jars.JarError`.

Callers decide by type and fields; ``str()`` is a sentence for a person, and no program reads it.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES: Final = re.compile(r"\n(stack backtrace:|\s+0: ).*", re.DOTALL)
"""Of Rust, which RUST_BACKTRACE adds."""


class RoutelakeError(Exception):
    """Root. ``fields`` are the keyword arguments it was raised with."""

    def __init__(self, message: str = "", /, **fields: object) -> None:
        self.fields = fields
        super().__init__(message or "; ".join(f"{name}: {value}" for name, value in fields.items()))


class BadRequestError(RoutelakeError):
    """The request cannot be accepted as it is; the message names the field and the rule."""


class TooLargeError(BadRequestError):
    """More bytes than may be; ``limit_bytes`` says how many may."""


class AccessDeniedError(RoutelakeError):
    """The sender lacks permission; ``is_authenticated`` tells whether it has an account."""

    def __init__(self, message: str, /, *, is_authenticated: bool) -> None:
        self.is_authenticated = is_authenticated
        super().__init__(message, is_authenticated=is_authenticated)


class NotFoundError(RoutelakeError):
    """The thing asked for does not exist. ``code`` is RocketMQ's ResponseCode for it."""

    def __init__(self, message: str, /, *, code: int, **fields: object) -> None:
        self.code = code
        super().__init__(message, code=code, **fields)


class HistoryError(RoutelakeError):
    """A past version that cannot be read."""


class VacuumedError(HistoryError):
    """Older than what is recorded; ``oldest_epoch`` and ``oldest_time`` name the oldest commit that is."""


class BeforeHistoryError(HistoryError):
    """Before there was anything to record; ``first_epoch`` and ``first_time`` name the first commit."""


class OtherLakeError(HistoryError):
    """A cursor or token of another lake, or of this one as it was before a restore."""


class FutureEpochError(HistoryError):
    """An epoch that has not been committed yet."""


class FutureTimeError(HistoryError):
    """A time that has not come yet; ``now`` is the gateway's."""


class UnavailableError(RoutelakeError):
    """Not now: the event log or the tables cannot be reached. Nothing was accepted."""


class QuotaError(UnavailableError):
    """More than one peer, or all together, may do. ``quota`` names the limit, ``retry_after_s`` a time to wait."""

    def __init__(self, message: str, /, *, quota: str, retry_after_s: int) -> None:
        self.quota = quota
        self.retry_after_s = retry_after_s
        super().__init__(message, quota=quota, retry_after_s=retry_after_s)


class InDoubtError(RoutelakeError):
    """An append failed on its way: whether its events are on the log is unknown, until somebody reads it.

    Appending them again is harmless: the fold takes an event that comes twice as a fact that was stated twice.
    """


class EventDecodeError(RoutelakeError):
    """A log record that this version cannot read as an event."""


class ProtocolError(RoutelakeError):
    """Bytes that are not a remoting frame. The connection is closed, as the stock NameServer does."""


class SetupError(RoutelakeError):
    """Start-up cannot go on; the message says what the operator can do."""


def one_line(error: BaseException) -> str:
    """Return a library's error message without colours, line breaks and Rust's stack, so that it fits on one line."""
    return " ".join(_FRAMES.sub("", _ESCAPES.sub("", str(error))).split()) or type(error).__name__

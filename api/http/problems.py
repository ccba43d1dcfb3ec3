# SPDX-License-Identifier: Apache-2.0
"""Errors as RFC 9457 problem details: every refusal of the HTTP API, each kind declared once.

A problem has ``type``, ``title``, ``status``, ``detail``, RocketMQ's ResponseCode as ``code``, for a bad body or
parameter ``errors`` with one entry per field, and members of its own (an offset, the oldest readable epoch). Programs
decide by ``type`` or ``code``; ``detail`` is for people.

`problem_of` maps the errors of `schemas.errors` to kinds; nothing else does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic.alias_generators import to_snake
from starlette.responses import Response

from lake.history.as_of import rfc3339
from schemas.codes import ResponseCode
from schemas.errors import (
    AccessDeniedError,
    BadRequestError,
    BeforeHistoryError,
    FutureEpochError,
    FutureTimeError,
    InDoubtError,
    NotFoundError,
    OtherLakeError,
    QuotaError,
    RoutelakeError,
    TooLargeError,
    UnavailableError,
    VacuumedError,
)

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:routelake:problem:"


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of problem. ``example`` and ``members`` are shown in the API description."""

    slug: str
    status: int
    title: str
    code: ResponseCode
    example: str
    members: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The URI that names this kind."""
        return TYPE_PREFIX + self.slug

    def body(self, detail: str, members: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The problem details object."""
        head = {"type": self.type, "title": self.title, "status": self.status, "detail": detail, "code": self.code}
        return {**head, **(members or {})}


_ERRORS: Final = {"errors": [{"field": "brokerId", "message": "must be greater than or equal to 0"}]}
_CODES = ResponseCode

BAD_REQUEST: Final = Kind(
    "bad-request", 400, "Malformed request", _CODES.SYSTEM_ERROR, "not JSON: a value is missing (byte 14)"
)
BAD_PARAMETER: Final = Kind(
    "bad-parameter",
    400,
    "Invalid parameter",
    _CODES.SYSTEM_ERROR,
    "wait: must be a number of seconds from 0 to 300",
    {"errors": [{"field": "wait", "message": "must be a number of seconds from 0 to 300"}]},
)
BAD_BODY: Final = Kind(
    "bad-body",
    422,
    "Invalid body",
    _CODES.SYSTEM_ERROR,
    "brokerId: must be greater than or equal to 0",
    _ERRORS,
)
UNAUTHORIZED: Final = Kind(
    "unauthorized", 401, "Authentication required", _CODES.NO_PERMISSION, "this gateway accepts writes with a token"
)
FORBIDDEN: Final = Kind(
    "forbidden",
    403,
    "Permission denied",
    _CODES.NO_PERMISSION,
    "without tokens, writes are accepted from this machine only",
)
CROSS_SITE: Final = Kind(
    "cross-site",
    403,
    "Cross-site write",
    _CODES.NO_PERMISSION,
    "a page of another site sent this write through a browser (Sec-Fetch-Site: cross-site), which is refused",
)
UNKNOWN_HOST: Final = Kind(
    "unknown-host",
    403,
    "Unknown host in the Host header",
    _CODES.NO_PERMISSION,
    "the Host header says 'evil.example': name an IP address, localhost or this machine",
)
LISTING_DISABLED: Final = Kind(
    "listing-disabled", 403, "Listing disabled", _CODES.SYSTEM_ERROR, "enableAllTopicList is false"
)
NOT_FOUND: Final = Kind(
    "not-found", 404, "Resource not found", _CODES.QUERY_NOT_FOUND, "there is no namespace ORDER_TOPIC_CONFIG"
)
NO_SUCH_ENDPOINT: Final = Kind(
    "no-such-endpoint",
    404,
    "Endpoint not found",
    _CODES.REQUEST_CODE_NOT_SUPPORTED,
    "there is no such endpoint: GET /docs lists them",
)
TOPIC_NOT_EXIST: Final = Kind(
    "topic-not-exist",
    404,
    "Topic not found",
    _CODES.TOPIC_NOT_EXIST,
    "no topic route info in name server for the topic: orders; GET /v1/topics/orders/changes has its changes",
)
FUTURE_EPOCH: Final = Kind(
    "future-epoch",
    404,
    "Epoch not written yet",
    _CODES.QUERY_NOT_FOUND,
    "epoch 900 does not exist yet",
    {"newestEpoch": 42},
)
FUTURE_TIME: Final = Kind(
    "future-time",
    404,
    "Time is in the future",
    _CODES.QUERY_NOT_FOUND,
    "2099-01-01T00:00:00Z is in the future: this machine's time is 2026-01-01T00:00:00Z",
    {"now": "2026-01-01T00:00:00Z"},
)
BEFORE_HISTORY: Final = Kind(
    "before-history",
    404,
    "Time is before the first epoch",
    _CODES.QUERY_NOT_FOUND,
    "1999-12-31T23:59:59Z is before the first epoch: epoch 1 of 2026-01-01T00:00:00Z",
    {"firstEpoch": 1, "firstTime": "2026-01-01T00:00:00Z"},
)
METHOD_NOT_ALLOWED: Final = Kind(
    "method-not-allowed", 405, "Method not allowed", _CODES.REQUEST_CODE_NOT_SUPPORTED, "this endpoint answers GET"
)
TIMEOUT: Final = Kind(
    "request-timeout", 408, "Request timeout", _CODES.SYSTEM_ERROR, "the body was not complete after 30 s"
)
REFUSED: Final = Kind(
    "registration-refused",
    409,
    "Registration refused",
    _CODES.SYSTEM_ERROR,
    "a registration with exactly one topic may not create a broker: register all topics first",
    {
        "reason": "SINGLE_TOPIC_REFUSED",
        "offset": 17,
        "eventTime": "2026-01-01T00:00:00.000Z",
        "visible": True,
        "epoch": 5,
    },
)
GONE: Final = Kind(
    "vacuumed",
    410,
    "History no longer available",
    _CODES.QUERY_NOT_FOUND,
    "epoch 3 is before the oldest state that is kept: epoch 12 of 2026-01-01T00:00:00Z",
    {"oldestEpoch": 12, "oldestTime": "2026-01-01T00:00:00.000Z"},
)
OTHER_LAKE: Final = Kind(
    "other-lake",
    410,
    "Token of another lake",
    _CODES.QUERY_NOT_FOUND,
    "cursor is of another lake, of this one before a restore, or too old: begin without it",
)
TOO_LARGE: Final = Kind(
    "too-large", 413, "Request too large", _CODES.SYSTEM_ERROR, "the body is larger than 67108864 bytes"
)
UNSUPPORTED_MEDIA: Final = Kind(
    "unsupported-media-type", 415, "Unsupported media type", _CODES.SYSTEM_ERROR, "send the body as application/json"
)
TOO_MANY: Final = Kind(
    "quota-exceeded",
    429,
    "Quota exceeded",
    _CODES.SYSTEM_BUSY,
    "quota admin-requests-per-s: 50 admin requests a second, 10000 at once, for 10.0.0.1 "
    "(--quota admin-requests-per-s=...); nothing was written",
    {"quota": "admin-requests-per-s"},
)
INTERNAL: Final = Kind(
    "internal-error", 500, "Internal error", _CODES.SYSTEM_ERROR, "this is a defect: see the gateway's log"
)
BUSY: Final = Kind(
    "system-busy",
    503,
    "Temporarily unavailable",
    _CODES.SYSTEM_BUSY,
    "offset 17 is not visible here yet; try again",
    {"offset": 17},
)

KINDS: Final = tuple(found for found in tuple(globals().values()) if isinstance(found, Kind))
"""All of the above, in this order."""

Headers = Mapping[str, str]

CHALLENGE: Final = {"www-authenticate": 'Bearer realm="routelake"'}
RETRY: Final = {"retry-after": "1"}
"""On every 503."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """Error of one field. ``field`` is a path: ``topicConfigSerializeWrapper.dataVersion.counter``."""

    field: str
    message: str


_KINDS_OF_ERRORS: Final[Mapping[type, Kind]] = {
    VacuumedError: GONE,
    OtherLakeError: OTHER_LAKE,
    FutureEpochError: FUTURE_EPOCH,
    FutureTimeError: FUTURE_TIME,
    BeforeHistoryError: BEFORE_HISTORY,
    UnavailableError: BUSY,
    InDoubtError: BUSY,
}
"""Kinds of errors that have the members of the problem as fields, in snake case."""


class Problem(RoutelakeError):
    """A refusal of the HTTP API.

    Args:
        kind: Kind of the problem.
        detail: Text for a person.
        errors: One entry per field that is wrong.
        headers: Headers added to the answer.
        members: Further members of the problem details object.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Iterable[FieldError] = (),
        headers: Headers | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = {name: _plain(value) for name, value in (members or {}).items() if value is not None}
        listed = [{"field": error.field, "message": error.message} for error in errors]
        if listed:
            self.members["errors"] = listed

    def response(self) -> Response:
        """The answer. Text that is not valid Unicode (from hostile input) is shown escaped."""
        found = self.kind.body(self.detail, self.members)
        body = json.dumps(found, ensure_ascii=True, separators=(",", ":")).encode()
        headers = {"cache-control": "no-store", **(RETRY if self.kind is BUSY else {}), **self.headers}
        return Response(body, self.kind.status, headers, MEDIA_TYPE)


def fields_problem(kind: Kind, errors: list[FieldError]) -> Problem:
    """A problem about fields; its detail is the first of them."""
    first = errors[0]
    named = not first.field or first.message.startswith(first.field)
    detail = first.message if named else f"{first.field}: {first.message}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(kind, detail + more, errors=errors)


def problem_of(error: RoutelakeError) -> Problem:
    """The problem for any error that routelake raises on purpose."""
    if isinstance(error, Problem):
        return error
    text = str(error)
    match error:
        case AccessDeniedError():
            return (
                Problem(FORBIDDEN, text) if error.is_authenticated else Problem(UNAUTHORIZED, text, headers=CHALLENGE)
            )
        case NotFoundError():
            return Problem(TOPIC_NOT_EXIST if error.code == ResponseCode.TOPIC_NOT_EXIST else NOT_FOUND, text)
        case QuotaError():
            retry = {"retry-after": str(error.retry_after_s)}
            return Problem(TOO_MANY, text, headers=retry, members={"quota": error.quota})
        case TooLargeError():
            return Problem(TOO_LARGE, text)
        case BadRequestError() if "field" in error.fields:
            return fields_problem(BAD_PARAMETER, [FieldError(str(error.fields["field"]), text)])
        case BadRequestError():
            return Problem(BAD_REQUEST, text)
    kind = next((_KINDS_OF_ERRORS[each] for each in type(error).__mro__ if each in _KINDS_OF_ERRORS), None)
    if kind is None:
        return Problem(INTERNAL, f"{type(error).__name__}: see the gateway's log")
    return Problem(kind, text, members={name: error.fields.get(to_snake(name)) for name in kind.members})


def busy(detail: str, *, offset: int | None = None) -> Problem:
    """Try again in a second."""
    return Problem(BUSY, detail, members={"offset": offset})


def rfc3339_ms(time_ms: int) -> str:
    """Milliseconds since the epoch in the same form."""
    return rfc3339(datetime.fromtimestamp(time_ms / 1000, UTC))


def _plain(value: object) -> object:
    return rfc3339(value) if isinstance(value, datetime) else value

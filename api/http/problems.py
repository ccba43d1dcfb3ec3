# SPDX-License-Identifier: Apache-2.0
"""Errors as RFC 9457 problem details: every refusal of the HTTP API, with each kind declared once.

A problem has ``type``, ``title``, ``status`` and ``detail``, and RocketMQ's ResponseCode as ``code``. For a bad body or
parameter it has ``errors``, with one entry per field. Some kinds have members of their own (an offset, the oldest
readable epoch). Programs decide by ``type`` or ``code``. ``detail`` is for people.

Only `problem_of` maps the errors of `schemas.errors` to kinds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from pydantic.alias_generators import to_snake
from starlette.responses import Response

from api.http.answers import FieldProblem
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
    """One kind of problem. ``members`` are the members that it gets from the fields of an error of `schemas.errors`."""

    slug: str
    status: int
    title: str
    code: ResponseCode
    members: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """URI of this kind."""
        return TYPE_PREFIX + self.slug

    def body(self, detail: str, **members: object) -> dict[str, Any]:
        """Return the problem details object."""
        head = {"type": self.type, "title": self.title, "status": self.status, "detail": detail, "code": self.code}
        return {**head, **members}


_CODES = ResponseCode

BAD_REQUEST: Final = Kind("bad-request", 400, "Malformed request", _CODES.SYSTEM_ERROR)
BAD_PARAMETER: Final = Kind("bad-parameter", 400, "Invalid parameter", _CODES.SYSTEM_ERROR)
BAD_BODY: Final = Kind("bad-body", 422, "Invalid body", _CODES.SYSTEM_ERROR)
UNAUTHORIZED: Final = Kind("unauthorized", 401, "Authentication required", _CODES.NO_PERMISSION)
FORBIDDEN: Final = Kind("forbidden", 403, "Permission denied", _CODES.NO_PERMISSION)
CROSS_SITE: Final = Kind("cross-site", 403, "Cross-site write", _CODES.NO_PERMISSION)
UNKNOWN_HOST: Final = Kind("unknown-host", 403, "Unknown host in the Host header", _CODES.NO_PERMISSION)
LISTING_DISABLED: Final = Kind("listing-disabled", 403, "Listing disabled", _CODES.SYSTEM_ERROR)
NOT_FOUND: Final = Kind("not-found", 404, "Resource not found", _CODES.QUERY_NOT_FOUND)
NO_SUCH_ENDPOINT: Final = Kind("no-such-endpoint", 404, "Endpoint not found", _CODES.REQUEST_CODE_NOT_SUPPORTED)
TOPIC_NOT_EXIST: Final = Kind("topic-not-exist", 404, "Topic not found", _CODES.TOPIC_NOT_EXIST)
FUTURE_EPOCH: Final = Kind("future-epoch", 404, "Epoch not written yet", _CODES.QUERY_NOT_FOUND, ("newestEpoch",))
FUTURE_TIME: Final = Kind("future-time", 404, "Time is in the future", _CODES.QUERY_NOT_FOUND, ("now",))
BEFORE_HISTORY: Final = Kind(
    "before-history", 404, "Time is before the first epoch", _CODES.QUERY_NOT_FOUND, ("firstEpoch", "firstTime")
)
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "Method not allowed", _CODES.REQUEST_CODE_NOT_SUPPORTED)
TIMEOUT: Final = Kind("request-timeout", 408, "Request timeout", _CODES.SYSTEM_ERROR)
REFUSED: Final = Kind("registration-refused", 409, "Registration refused", _CODES.SYSTEM_ERROR)
GONE: Final = Kind(
    "vacuumed", 410, "History no longer available", _CODES.QUERY_NOT_FOUND, ("oldestEpoch", "oldestTime")
)
OTHER_LAKE: Final = Kind("other-lake", 410, "Token of another lake", _CODES.QUERY_NOT_FOUND)
TOO_LARGE: Final = Kind("too-large", 413, "Request too large", _CODES.SYSTEM_ERROR)
UNSUPPORTED_MEDIA: Final = Kind("unsupported-media-type", 415, "Unsupported media type", _CODES.SYSTEM_ERROR)
TOO_MANY: Final = Kind("quota-exceeded", 429, "Quota exceeded", _CODES.SYSTEM_BUSY)
INTERNAL: Final = Kind("internal-error", 500, "Internal error", _CODES.SYSTEM_ERROR)
BUSY: Final = Kind("system-busy", 503, "Temporarily unavailable", _CODES.SYSTEM_BUSY, ("offset",))

KINDS: Final = tuple(found for found in tuple(globals().values()) if isinstance(found, Kind))
"""All kinds above, in this order."""

Headers = Mapping[str, str]

CHALLENGE: Final = {"www-authenticate": 'Bearer realm="routelake"'}
RETRY: Final = {"retry-after": "1"}
"""Header of every 503."""


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
        detail: Text for people.
        errors: One entry per field that is wrong.
        headers: Headers added to the answer.
        members: Further members of the problem details object.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Headers | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = {name: _plain(value) for name, value in (members or {}).items() if value is not None}
        if errors:
            self.members["errors"] = msgspec.to_builtins(errors)

    def response(self) -> Response:
        """Return the answer. Text that is not valid Unicode (from hostile input) is escaped."""
        found = self.kind.body(self.detail, **self.members)
        body = json.dumps(found, ensure_ascii=True, separators=(",", ":")).encode()
        headers = {"cache-control": "no-store", **(RETRY if self.kind is BUSY else {}), **self.headers}
        return Response(body, self.kind.status, headers, MEDIA_TYPE)


def bad_parameter(name: str, message: str) -> Problem:
    """Return the problem about one parameter."""
    return fields_problem(BAD_PARAMETER, [FieldProblem(field=name, message=message)])


def fields_problem(kind: Kind, errors: Sequence[FieldProblem]) -> Problem:
    """Return a problem about fields. Its detail is the first error."""
    first = errors[0]
    named = not first.field or first.message.startswith(first.field)
    detail = first.message if named else f"{first.field}: {first.message}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(kind, detail + more, errors=errors)


def problem_of(error: RoutelakeError) -> Problem:
    """Return the problem for an error that routelake raises on purpose."""
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
            return bad_parameter(str(error.fields["field"]), text)
        case BadRequestError():
            return Problem(BAD_REQUEST, text)
    kind = next((_KINDS_OF_ERRORS[each] for each in type(error).__mro__ if each in _KINDS_OF_ERRORS), None)
    if kind is None:
        return Problem(INTERNAL, f"{type(error).__name__}: see the gateway's log")
    return Problem(kind, text, members={name: error.fields.get(to_snake(name)) for name in kind.members})


def busy(detail: str, *, offset: int | None = None) -> Problem:
    """Return the problem that asks the client to try again in a second."""
    return Problem(BUSY, detail, members={"offset": offset})


def rfc3339_ms(time_ms: int) -> str:
    """Return milliseconds since the epoch in the form of RFC 3339."""
    return rfc3339(datetime.fromtimestamp(time_ms / 1000, UTC))


def _plain(value: object) -> object:
    return rfc3339(value) if isinstance(value, datetime) else value

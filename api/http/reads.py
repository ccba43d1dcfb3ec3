# SPDX-License-Identifier: Apache-2.0
"""Common part of all reads: parameters, waiting for an offset, entity tags, the epoch in the headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.gateway.watched_view import WatchedView
from api.http.context import HttpContext, context_of
from api.http.etag import JSON, WAITED, ReadPosition, if_none_match, matches, read_headers
from api.http.parameters import Format, number, parse_number, wanted_format
from api.http.problems import OTHER_LAKE, Problem, bad_parameter, busy
from api.settings.gateway import Reads
from lake.history.as_of import NOW, AsOf
from lake.history.change_json import csv_text, json_lines, without_settings
from lake.history.history import History
from nameserver.answers import RouteAnswers, body_digest
from nameserver.view.snapshot import RouteView
from remoting.codec.bounds import address_of

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode

MAX_WAIT_MS: Final = 30_000
DEFAULT_WAIT_MS: Final = 5_000
POINT_IN_TIME: Final = "an epoch number, an RFC 3339 time with its offset from UTC, or `now`"
"""Form of a parameter for a point in time, in its description."""
MAX_LONG_POLL_S: Final = 300.0


def _token(text: str) -> str:
    offset, dash, lineage = text.partition("-")
    if dash and not re.fullmatch(r"[0-9a-f]{8}", lineage):
        raise ValueError("must be an offset, or a token as X-Routelake-Token gave it")
    parse_number(offset)
    return text


OffsetToken = Annotated[str, AfterValidator(_token)]
"""An offset. With a lineage it names the event log, too (`api.gateway.gateway.Gateway.lineage`)."""
WaitMs = Annotated[int, *number(most=MAX_WAIT_MS)]


class ReadQuery(BaseModel):
    """Parameters of every read. An unknown parameter is refused: a misspelt ``as_of`` must not answer from the present.

    A read with only these parameters reads the tables.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    wait_for: OffsetToken | None = Field(
        None,
        description="Wait until the answer has every event up to this offset. Pass `X-Routelake-Token` of an earlier "
        "answer. If it is of another event log, the answer is 410. A number alone is not compared with the event log.",
        examples=["17-5be0c4d2", "17"],
    )
    wait_timeout: WaitMs = Field(DEFAULT_WAIT_MS, description="Maximum wait of `wait_for`, in milliseconds.")

    def view(self) -> Reads | None:
        """Return the view that answers. None if the gateway's settings decide."""
        return Reads.COMMITTED


class ViewQuery(ReadQuery):
    """Parameters of a read of the present."""

    reads: Reads | None = Field(
        None,
        description="`live`: the latest epoch and the newer events of the event log. `committed`: the latest epoch "
        "alone. The default is the gateway's option `--reads`, which is `live` if it is not set.",
    )

    def view(self) -> Reads | None:
        """Return the view that the parameter names."""
        return self.reads


class WindowQuery(ReadQuery):
    """Parameters of a read of a window of event time."""

    from_: str | None = Field(
        None,
        alias="from",
        description=f"Changes after this point in time: {POINT_IN_TIME}. Default: the beginning.",
    )
    to: str | None = Field(
        None, description=f"Changes up to this point in time, which is included: {POINT_IN_TIME} (the default)."
    )

    @property
    def is_fresh(self) -> bool:
        """Return whether a cached answer of an earlier epoch is not enough."""
        return self.wait_for is not None


class PageQuery(BaseModel):
    """Parameter of lists with pages, in addition to `ReadQuery`."""

    cursor: Annotated[str, Field(max_length=4096)] | None = Field(
        None, description="`nextCursor` of the previous page."
    )


class PastQuery(ViewQuery):
    """Parameters of a read of the present or of the past."""

    as_of: str | None = Field(
        None,
        description=f"Point in time that the answer shows: {POINT_IN_TIME} (the default).",
        examples=["17", "2026-01-31T03:00:00Z"],
    )

    @property
    def past(self) -> str | None:
        """Return the requested point in time. None for the present."""
        return None if self.as_of == NOW else self.as_of

    def view(self) -> Reads | None:
        """Return the view that answers. The past is in the tables."""
        return self.reads if self.past is None else Reads.COMMITTED

    def check(self) -> None:
        """Refuse an earlier point in time with the live view.

        Raises:
            Problem: 400.
        """
        if self.past is not None and self.reads is Reads.LIVE:
            raise bad_parameter("reads", "reads=live cannot be combined with as_of: history is in the tables")


class Missing(StrEnum):
    """Kind of answer if the name does not exist."""

    PROBLEM = "problem"
    EMPTY = "empty"


class MissingQuery(BaseModel):
    """Parameter of reads of one name, in addition to `ReadQuery`."""

    missing: Missing = Field(
        Missing.PROBLEM,
        description="`empty`: if the name does not exist, answer 200 with an empty result instead of 404.",
    )

    @property
    def is_empty_fine(self) -> bool:
        """Return whether an empty result is wanted instead of a problem."""
        return self.missing is Missing.EMPTY


@dataclass(frozen=True, slots=True)
class Reading:
    """An accepted read.

    Attributes:
        context: Context of the application.
        source: View that answers it.
        answers: Encoded routes of that view.
    """

    context: HttpContext
    source: WatchedView
    answers: RouteAnswers

    @property
    def view(self) -> RouteView:
        """Newest view."""
        return self.source.view

    @property
    def position(self) -> ReadPosition:
        """Epoch and offset that the view shows."""
        return ReadPosition(self.source.view.epoch, self.source.offset, lineage=self.context.gateway.lineage)


async def begin(request: Request, query: ReadQuery) -> Reading:
    """Begin an admitted read: wait for the offset that it asks for.

    Raises:
        Problem: A parameter is given twice, or the offset is not visible in time.
    """
    context = context_of(request)
    check_once(request)
    reads = query.view() or context.gateway.settings.reads
    source = context.gateway.reads(reads)
    if query.wait_for is not None:
        text, _, lineage = query.wait_for.partition("-")
        offset = int(text)
        if lineage and lineage != context.gateway.lineage:
            what = "wait_for is a token of another log, or of this one before a restore: read without it"
            raise Problem(OTHER_LAKE, what)
        request.scope[WAITED] = True
        if source.offset < offset and source is context.gateway.committed:
            context.gateway.fold.hasten()
        if not await source.wait_for(offset, query.wait_timeout / 1000, is_read=True):
            raise busy(f"offset {offset} is not visible here yet; try again", offset=offset)
        context.guard.reader_again(request)
    return Reading(context, source, context.answers[reads])


async def history_answer(
    request: Request, query: ReadQuery, kind: str, write: Callable[[History, ReadPosition], Response]
) -> Response:
    """Answer a read of the history.

    Args:
        request: Request. Its address takes turns with others.
        query: Parameters of the request.
        kind: Kind of the read, its name in the queue.
        write: Reads the history and writes the answer. It gets an epoch that the answer includes at least. It is called
            in a thread of the history, because a page of 4 MiB, or of 5,000 rows as CSV, takes tenths of a second.

    Raises:
        RoutelakeError: As `begin`, and what ``write`` raises.
    """
    reading = await begin(request, query)
    position = reading.position  # taken first, because the answer may be newer
    return await read_history(request, reading.context, kind, lambda history: write(history, position))


async def ask_past(
    request: Request, context: HttpContext, as_of: str, read: Callable[[History, AsOf], T]
) -> tuple[T, ReadPosition]:
    """Read the tables of an earlier point in time. Return the result and its epoch.

    Args:
        request: Request. Its address takes turns with others.
        context: Context of the application.
        as_of: Point in time.
        read: Query, called in a thread of the history.

    Raises:
        RoutelakeError: As `History.resolve`.
    """

    def ask(history: History) -> tuple[T, ReadPosition]:
        point = history.resolve(as_of)
        return read(history, point), ReadPosition.of(point.commit)

    return await read_history(request, context, "past", ask)


async def read_history(request: Request, context: HttpContext, kind: str, ask: Callable[[History], T]) -> T:
    """Read the history, for as long as the client waits.

    Args:
        request: Request. Its address takes turns with others.
        context: Context of the application.
        kind: Kind of the read, its name in the queue.
        ask: Query, called in a thread of the history.

    Raises:
        RoutelakeError: ``ask`` has raised it.
        Problem: As `HistoryPool.read`.
    """
    gone = asyncio.create_task(disconnected(request))
    try:
        return await context.history.read(ask, (address(request), kind), gone)
    finally:
        gone.cancel()


async def disconnected(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def requested_view(
    request: Request, query: PastQuery, read: Callable[[History, AsOf], RouteView]
) -> tuple[RouteView, ReadPosition]:
    """Return the view that answers (the current one or a part of an earlier one) and its epoch.

    Args:
        request: The request.
        query: Parameters of the request.
        read: Query of the needed part of an earlier point in time.

    Raises:
        RoutelakeError: As `begin` and `History.resolve`.
    """
    query.check()
    reading = await begin(request, query)
    if query.past is None:
        return reading.view, reading.position
    return await ask_past(request, reading.context, query.past, read)


def settings_hidden(request: Request) -> Callable[[Iterable[dict[str, Any]]], list[dict[str, Any]]]:
    """Return a function that removes from changes or differences the values that the sender may not see.

    The values of settings (`schemas.kv.NAMESRV_CONFIG`) are for senders with the permission for GET_NAMESRV_CONFIG.
    Other senders see which settings changed, when, and by which user. The function takes rows as
    `lake.history.change_json` returns them, in any thread.

    Args:
        request: Request of an accepted read, after `begin`.
    """
    sees_all = context_of(request).guard.may_read_settings(request)
    return list if sees_all else lambda rows: list(map(without_settings, rows))


def check_once(request: Request) -> None:
    """Refuse a query parameter that is given twice, because it is ambiguous.

    Raises:
        Problem: 400.
    """
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise bad_parameter(name, "is given twice")
        seen.add(name)


def address(request: Request) -> str:
    """Return the address of the sender, for limits by address."""
    return "" if request.client is None else address_of(request.client.host)


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the header with the link to the next page. Empty on the last page.

    The link is relative to the page itself (RFC 8288, 3.1), because a proxy may have put a path before it.
    """
    if cursor is None:
        return {}
    return {"link": f'<?{request.url.include_query_params(cursor=cursor).query}>; rel="next"'}


def answer(
    request: Request,
    found: object,
    position: ReadPosition,
    *,
    media: str = JSON,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Return 200 with a body, or 304 if the client has it. Both have the same headers.

    Args:
        request: The request.
        found: The encoded body, or a value that is encoded as JSON.
        position: State that the answer shows.
        media: Media type of the body.
        headers: Further headers.
    """
    body = found if isinstance(found, bytes) else _encode(found)
    digest = body_digest(body)
    all_headers = {**read_headers(position, digest), **headers}
    if matches(if_none_match(request.headers.raw), digest):
        return Response(status_code=304, headers=all_headers)
    return Response(body, 200, all_headers, media)


def list_answer(
    request: Request,
    found: object,
    position: ReadPosition,
    columns: Iterable[str],
    rows: list[dict[str, Any]],
    next_cursor: str | None,
) -> Response:
    """Return `answer` with a page of rows in the format that the client prefers, and the link to the next page.

    Args:
        request: The request.
        found: The page as JSON.
        position: State that the answer shows.
        columns: Columns of CSV.
        rows: Rows of CSV and of lines of JSON.
        next_cursor: Cursor of the next page; None on the last.
    """
    media = wanted_format(request)
    if media is Format.CSV:
        found = csv_text(columns, rows).encode()
    elif media is Format.NDJSON:
        found = json_lines(rows)
    headers = next_link(request, next_cursor) | {"vary": "accept"}
    return answer(request, found, position, media=media, headers=headers)


def uncached(found: object, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return an answer with a value as JSON that no cache may keep."""
    return Response(_encode(found), status, {"cache-control": "no-store", **headers}, JSON)

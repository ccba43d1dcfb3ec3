# SPDX-License-Identifier: Apache-2.0
"""Page sizes and cursors. A cursor has the digest of its query and lake, so that it is refused for any other."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Any, TypeVar

import msgspec

from lake.history.history import History
from schemas.errors import BadRequestError
from schemas.route_commit import EpochMark

T = TypeVar("T")

# Anyone can make a cursor, so its numbers have limits that the queries of the tables can take.
Number = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
"""An epoch, offset or position within an epoch in a cursor."""
TimeUs = Annotated[int, msgspec.Meta(ge=0, le=2**57)]
"""Microseconds since 1970 UTC in a cursor, up to the year 6537."""


def how_many_fit(sizes: Iterable[int], room: int) -> int:
    """Number of leading rows that fit on a page, from the sizes of the rows."""
    return sum(total <= room for total in accumulate(sizes))


def cursor_of(history: History, query: object, place: object) -> str:
    """Make a cursor, as text for a URL.

    Args:
        history: History of the lake.
        query: All parameters of the query, for msgspec.
        place: Position in the result, for msgspec.
    """
    return _text(_digest(query).encode() + msgspec.json.encode([str(history.mark()), place]))


def place_of(history: History, cursor: str, query: object, type_: type[T]) -> T:
    """Decode the position in a cursor.

    Raises:
        BadRequestError: The text is no cursor, or belongs to another query.
        OtherLakeError: The cursor is of another lake, or of this lake before a restore.
        UnavailableError: There is no lake, or it cannot be read now.
    """
    try:
        found = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        text, place = msgspec.json.decode(found[_DIGITS:], type=tuple[str, type_])  # type: ignore[valid-type]
        mark = EpochMark.parse(text)
    except (ValueError, binascii.Error) as error:
        raise BadRequestError(f"cursor is not valid for this list: {cursor!r}", field="cursor", value=cursor) from error
    if found[:_DIGITS] != _digest(query):
        what = "cursor is from a query with other parameters; begin without a cursor"
        raise BadRequestError(what, field="cursor", value=cursor)
    history.check_mark(mark, "cursor")
    return place


_DIGITS = 8


def _digest(query: Any) -> str:  # noqa: ANN401 (whatever msgspec takes)
    return hashlib.sha256(msgspec.json.encode(query)).hexdigest()[:_DIGITS]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

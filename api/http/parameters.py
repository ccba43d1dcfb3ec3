# SPDX-License-Identifier: Apache-2.0
"""Parameters of several endpoints: names in paths and queries, numbers, the format of a list.

RocketMQ's wire allows any name, so a name may contain a slash, which a path has as ``%2F``. Servers decode a path
before it is matched. Then that slash looks like any other. So this module keeps it apart until a name is taken out of
the path.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from api.http.naming_rules import cluster_name_problem
from api.http.problems import bad_parameter
from schemas.codes import MAX_LONG

_SLASH: Final = "\udc2f"
"""Replacement for ``%2F`` in a path that is being matched. No decoded path contains it."""
_ENCODED_SLASH: Final = re.compile("%2f", re.IGNORECASE)

_WEIGHT: Final = re.compile(r"(0(\.[0-9]*)?|1(\.0*)?)", re.ASCII)

_MOST_RANGES: Final = 50
_LONGEST_RANGE: Final = 400


class _Names(Convertor[str]):
    """Convertor of any text, with the slashes of the path."""

    regex = "(?s:.*)"  # a name may have line ends

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


class _Name(_Names):
    """Convertor of the text between two slashes of the path."""

    regex = "[^/]+"


register_url_convertor("names", _Names())
register_url_convertor("name", _Name())


def path_to_match(raw_path: bytes) -> str | None:
    """Return the path of a request with its encoded slashes kept apart. None if it has none.

    Args:
        raw_path: Path as sent.
    """
    parts = _ENCODED_SLASH.split(raw_path.decode("latin-1"))
    return _SLASH.join(map(unquote, parts)) if len(parts) > 1 else None


TopicPath = Annotated[str, Path(description="The topic.", examples=["orders"])]


def check_name(problem: str | None, field: str) -> None:
    """Refuse a name in a path or query.

    Raises:
        Problem: 400.
    """
    if problem is not None:
        raise bad_parameter(field, problem)


def _cluster(name: str | None) -> str | None:
    # An empty name must not mean "all", because an unset shell variable leaves an empty name.
    problem = None if name is None else cluster_name_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


Cluster = Annotated[str | None, AfterValidator(_cluster)]


# --- numbers ---

_DIGITS = re.compile(r"[0-9]{1,19}")
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


def number(*, least: int = 0, most: int = MAX_LONG) -> tuple[BeforeValidator, WithJsonSchema]:
    """Make the validator and schema of a whole number in a query string."""

    def parse(text: object) -> object:
        return parse_number(text, least=least, most=most) if isinstance(text, str) else text

    return BeforeValidator(parse), WithJsonSchema({"type": "integer", "minimum": least, "maximum": most})


def seconds(most: float) -> tuple[BeforeValidator, WithJsonSchema]:
    """Make the validator and schema of a number of seconds in a query string."""

    def parse(text: object) -> object:
        if not isinstance(text, str):
            return text
        if not _SECONDS.fullmatch(text) or float(text) > most:
            raise ValueError(f"must be a number of seconds from 0 to {most:g}")
        return float(text)

    return BeforeValidator(parse), WithJsonSchema({"type": "number", "minimum": 0, "maximum": most})


def parse_number(text: str, *, least: int = 0, most: int = MAX_LONG) -> int:
    """Parse a whole number in decimal digits.

    Raises:
        ValueError: The text is not a number, or the number is out of range. The message says so.
    """
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"must be a whole number from {least} to {most}")
    return int(text)


# --- formats ---


class Format(StrEnum):
    """Media types of a list. If a request accepts none of them, it gets the first."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"


OTHER_FORMATS: Final = (Format.CSV, Format.NDJSON)
"""Formats of a list in addition to JSON."""


def wanted_format(request: Request) -> Format:
    """Return the format that the Accept headers of a request prefer (RFC 9110, 12.5.1)."""
    ranges = ",".join(request.headers.getlist("accept")).split(",", _MOST_RANGES)
    likes = [_liking(part) for part in ranges[:_MOST_RANGES]]
    scores = {each: _score(each, likes) for each in Format}
    best = max(Format, key=lambda each: scores[each])  # the first of equals
    return best if scores[best] > 0 else Format.JSON


def _liking(part: str) -> tuple[str, float]:
    """Parse a media range and its weight."""
    name, *parameters = (each.strip().lower() for each in part[:_LONGEST_RANGE].split(";"))
    weight = 1.0
    for each in parameters:
        key, _, value = (part.strip() for part in each.partition("="))
        if key == "q":
            weight = float(value) if _WEIGHT.fullmatch(value) else 0.0
    return name, weight


def _score(media: Format, likes: list[tuple[str, float]]) -> float:
    """Return the weight of the narrowest range that contains a media type."""
    for name in (media, f"{media.partition('/')[0]}/*", "*/*"):
        weights = [weight for liked, weight in likes if liked == name]
        if weights:
            return max(weights)
    return 0.0

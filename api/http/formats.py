# SPDX-License-Identifier: Apache-2.0
"""Which of the formats that a list comes in a client asks for (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from starlette.requests import Request

_WEIGHT: Final = re.compile(r"(0(\.[0-9]*)?|1(\.0*)?)", re.ASCII)

_MOST_RANGES: Final = 50
_LONGEST_RANGE: Final = 400


class Format(StrEnum):
    """Media types; whoever asks for none of them gets the first."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"


def wanted_format(request: Request) -> Format:
    """The format that the Accept headers like best."""
    ranges = ",".join(request.headers.getlist("accept")).split(",", _MOST_RANGES)
    likes = [_liking(part) for part in ranges[:_MOST_RANGES]]
    scores = {each: _score(each, likes) for each in Format}
    best = max(Format, key=lambda each: scores[each])  # of equals, the first
    return best if scores[best] > 0 else Format.JSON


def _liking(part: str) -> tuple[str, float]:
    """A media range and its weight."""
    name, *parameters = (each.strip().lower() for each in part[:_LONGEST_RANGE].split(";"))
    weight = 1.0
    for each in parameters:
        key, _, value = (part.strip() for part in each.partition("="))
        if key == "q":
            weight = float(value) if _WEIGHT.fullmatch(value) else 0.0
    return name, weight


def _score(media: Format, likes: list[tuple[str, float]]) -> float:
    """The weight of the narrowest range that a media type is in."""
    for name in (media, f"{media.partition('/')[0]}/*", "*/*"):
        weights = [weight for liked, weight in likes if liked == name]
        if weights:
            return max(weights)
    return 0.0

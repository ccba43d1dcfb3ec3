# SPDX-License-Identifier: Apache-2.0
"""What an Accept header asks for (RFC 9110, 12.5.1)."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from api.http.formats import Format, wanted_format

JSON, NDJSON, CSV = Format


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/csv", CSV),
        ("TEXT/CSV", CSV),
        ("text/csv;charset=utf8", CSV),
        ('text/csv; header=present; charset="utf-8"', CSV),
        ("text/*", CSV),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("application/json;q=0.5, text/csv;Q=0.9", CSV),
        ("application/json;q=0.5, text/csv; q = 0.4", JSON),
        ("application/x-ndjson;q=1.000", NDJSON),
        ("text/csv;q=0", JSON),
        ("application/json;q=nan, text/csv;q=0.1", CSV),
        ("text/csv;q=inf, application/json;q=0.1", JSON),
        ("text/csv;q=0.9, application/json;q=1e9", CSV),
    ],
)
def test_the_format_that_is_liked_best(accept: str, wanted: Format) -> None:
    request = Request({"type": "http", "headers": [(b"accept", accept.encode())]})
    assert wanted_format(request) is wanted

# SPDX-License-Identifier: Apache-2.0
"""AsOfResolver as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from cli.history.show import local_text, point_in_time, time_zone, zone_text
from schemas.errors import SetupError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 30, 8, 30, tzinfo=UTC)
"""10:30 in Berlin. The clocks there went forward the night before yesterday's noon."""


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("now", "now"),
        (" NOW ", "now"),
        ("17", "17"),
        ("-2h", "2026-03-30T06:30:00Z"),
        ("-1d12h30m", "2026-03-28T20:00:00Z"),
        ("-90min", "2026-03-30T07:00:00Z"),
        ("-1w", "2026-03-23T08:30:00Z"),
        ("-5s", "2026-03-30T08:29:55Z"),
        ("today", "2026-03-29T22:00:00Z"),
        ("yesterday", "2026-03-28T23:00:00Z"),  # before the clocks went forward
        ("yesterday 02:55", "2026-03-29T01:55:00Z"),  # a time that Berlin did not have: as if they had not
        ("Yesterday 9:05", "2026-03-29T07:05:00Z"),
        ("2026-01-31 03:00", "2026-01-31T02:00:00Z"),
        ("2026-01-31", "2026-01-30T23:00:00Z"),
        ("2026-01-31T03:00:00.250", "2026-01-31T02:00:00.250000Z"),
        ("10:15", "2026-03-30T08:15:00Z"),
        ("23:59", "2026-03-29T21:59:00Z"),  # the last one
        ("2026-01-31T03:00:00Z", "2026-01-31T03:00:00Z"),
        ("2026-01-31 03:00:00+08:00", "2026-01-30T19:00:00Z"),
        ("2026-01-31 03:00 -05:30", "2026-01-31T08:30:00Z"),
        ("2026-01-31T03:00:00.123456789Z", "2026-01-31T03:00:00.123456Z"),
    ],
)
def test_points_in_time(text: str, asked: str) -> None:
    assert point_in_time(text, "--from", NOW, BERLIN) == asked


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "2h", "-2", "-h", "tomorrow", "yesterday 25:00", "2026-13-01", "2026-02-30 00:00", "24:00"),
        *("1767225601000", "yesterday 02:55 PM", "-99999999999w", "0001-01-01 00:00", "12:60", "٣"),
    ],
)
def test_text_that_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="--to .* is not a point in time; write an epoch"):
        point_in_time(text, "--to", NOW, BERLIN)


def test_zones() -> None:
    assert time_zone("") is None
    assert time_zone("Europe/Berlin") == BERLIN
    for bad in ("Mars", "../etc/passwd", "/etc/localtime", "\0"):
        with pytest.raises(SetupError, match="unknown time zone"):
            time_zone(bad)
    assert zone_text(NOW, BERLIN) == "Europe/Berlin (UTC+02:00)"
    assert zone_text(NOW, ZoneInfo("UTC")) == "UTC"
    assert local_text(NOW, BERLIN) == "2026-03-30 10:30:00.000"
    assert re.fullmatch(r"2026-03-\d\d \d\d:\d\d:00.000", local_text(NOW, None))  # this machine's

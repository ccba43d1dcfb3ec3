# SPDX-License-Identifier: Apache-2.0
"""AsOfResolver as people write them: ``-2h``, ``yesterday 02:55``, ``2026-11-23 02:55``, an epoch, ``now``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import SetupError

EXPECTED: Final = (
    "an epoch (17), now, a time ago (-2h, -1d12h), today, yesterday or a date with a time (yesterday 02:55, "
    "2026-01-31 03:00), a time alone (02:55, the last one), each in the zone of --time-zone, or a time with its "
    "own (2026-01-31T03:00:00Z)"
)
_AGO: Final = re.compile(r"-(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s)?", re.ASCII)
_DAY: Final = re.compile(r"(today|yesterday|\d{4}-\d\d-\d\d)?[ Tt]?(\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?)?", re.ASCII)
_WITH_OFFSET: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ Tt](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?) ?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def time_zone(name: str) -> tzinfo | None:
    """A zone by its name in the IANA database; None, this machine's, without one.

    Raises:
        SetupError: There is none of that name.
    """
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        what = f"--time-zone: there is no zone {name!r}; write one such as UTC or Asia/Shanghai"
        raise SetupError(what) from error


def moment_text(text: str, option: str, now: datetime, zone: tzinfo | None) -> str:
    """What ``as_of`` and its like take: an epoch, ``now``, or an RFC 3339 time in UTC.

    Args:
        text: As somebody wrote it.
        option: Where, for errors.
        now: What it is relative to; aware.
        zone: Of times that do not say theirs; None: this machine's.

    Raises:
        SetupError: It is no moment.
    """
    found = text.strip().lower()
    if found == "now" or re.fullmatch(r"[0-9]{1,9}", found):
        return found
    time = _moment(found, now, zone)
    if time is None:
        raise SetupError(f"{option} {text!r} is no moment; write {EXPECTED}")
    return time.isoformat().replace("+00:00", "Z")


def local_text(time: datetime, zone: tzinfo | None) -> str:
    """A time for people, to the millisecond, without its zone: `zone_text` says that once."""
    return time.astimezone(zone).isoformat(sep=" ", timespec="milliseconds")[:23]


def zone_text(time: datetime, zone: tzinfo | None) -> str:
    """A zone for people, as it is at a time: ``CET (UTC+01:00)``."""
    local = time.astimezone(zone)
    offset = local.isoformat()[-6:]
    name = str(zone) if isinstance(zone, ZoneInfo) else local.tzname() or ""
    return "UTC" if name == "UTC" else f"{name} (UTC{offset})"


def _moment(text: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    """In UTC."""
    try:
        ago = _AGO.fullmatch(text)
        if ago is not None and any(ago.groups()):
            weeks, days, hours, minutes, seconds = (int(each or 0) for each in ago.groups())
            ago_by = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
            return (now - ago_by).astimezone(UTC)
        own = _WITH_OFFSET.fullmatch(text)
        if own is not None:
            return datetime.fromisoformat(f"{own[1]}T{own[2]}{own[3].upper()}").astimezone(UTC)
        day = _DAY.fullmatch(text)
        if day is None or not any(day.groups()):
            return None
        return _on_a_day(day[1], day[2], now.astimezone(zone), zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _on_a_day(day: str | None, clock: str | None, now: datetime, zone: tzinfo | None) -> datetime:
    """Midnight where no time is said; the last such time where no day is."""
    today = now.date()
    date = (
        today - timedelta(days=1)
        if day == "yesterday"
        else today
        if day in (None, "today")
        else datetime.fromisoformat(day).date()
    )
    hours, _, rest = (clock or "00:00").partition(":")
    time = datetime.fromisoformat(f"{date.isoformat()}T{int(hours):02}:{rest}")
    found = _in_zone(time, zone)
    if day is None and found > now:
        found = _in_zone(time - timedelta(days=1), zone)
    return found


def _in_zone(time: datetime, zone: tzinfo | None) -> datetime:
    return time.astimezone() if zone is None else time.replace(tzinfo=zone)

# SPDX-License-Identifier: Apache-2.0
"""Text of a point in time: an epoch number, an RFC 3339 time with its offset from UTC, or ``now``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from schemas.errors import BadRequestError

_EPOCH: Final = re.compile(r"[0-9]{1,18}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?")
_UNIX: Final = {
    10: ("seconds", 1),
    13: ("milliseconds", 10**3),
    16: ("microseconds", 10**6),
    19: ("nanoseconds", 10**9),
}
"""By number of digits, as it has been since 2001 and will be until 2286."""
_UNIX_TIME: Final = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.\d+)?", re.ASCII)
_LOST_PLUS: Final = re.compile(r"(.*\d) (\d\d:\d\d)")


NOW: Final = "now"


def parse_as_of(value: str, name: str = "as_of") -> int | datetime:
    """An epoch, or an aware time in UTC.

    Raises:
        BadRequestError: It is neither, or a time without offset.
    """
    if _EPOCH.fullmatch(value.strip()):
        return int(value)
    return parse_time(value, name, f"an epoch number (17), a time (2026-01-31T03:00:00Z) or {NOW}")


def unix_time_hint(value: str, name: str) -> str | None:
    """What to write in place of a Unix time; None for what does not look like one."""
    found = _UNIX_TIME.fullmatch(value.strip())
    if found is None:
        return None
    unit, per_second = _UNIX[len(found[1])]
    time = rfc3339(datetime.fromtimestamp(int(found[1]) // per_second, UTC))
    return f"{name} looks like a Unix time in {unit}: write {name}={time} for {value}"


def parse_time(value: str, name: str, expected: str = "a time (2026-01-31T03:00:00Z)") -> datetime:
    """An RFC 3339 time in UTC.

    A space in place of the offset's plus sign is taken as one: that is what an unescaped + in a URL becomes.

    Raises:
        BadRequestError: It is none, or names no offset.
    """
    found = value.strip()
    lost = _LOST_PLUS.fullmatch(found)
    if lost is not None and _TIME.fullmatch(lost[1]):
        found = f"{lost[1]}+{lost[2]}"
    try:
        match = _TIME.fullmatch(found)
        time = datetime.fromisoformat(found.upper()) if match else None
    except ValueError:
        match = time = None
    if match is None or time is None:
        what = unix_time_hint(value, name) or f"{name} must be {expected}, not {value!r}"
        raise BadRequestError(what, field=name, value=value)
    if time.tzinfo is None:
        raise BadRequestError(
            f"{name} has no offset from UTC: {value!r} could mean many moments. Write {found}Z or {found}%2B08:00.",
            field=name,
            value=value,
        )
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise BadRequestError(f"{name} is out of range: {value!r}", field=name, value=value) from error


def rfc3339(time: datetime) -> str:
    """An aware time in UTC with milliseconds, the precision of event times: ``2026-01-01T00:00:00.000Z``."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

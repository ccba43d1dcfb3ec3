# SPDX-License-Identifier: Apache-2.0
"""Output of `routelake history` as tables, JSON and CSV, and the parser of times on the command line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain, groupby
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cli.history.source import DiffPage
from cli.output import Form, write_table
from schemas.errors import SetupError

_SHOWN_TOPICS: Final = 3
_SHOWN_TEXT: Final = 200
_CHANGE_TITLES: Final = ("Time", "Epoch", "Command", "Result", "By", "Table", "Target", "Change")
_TIMELINE_COLUMNS: Final = ("from", "to", "fromEpoch", "toEpoch", "begunBy", "endedBy")
_BLAME_COLUMNS: Final = ("tableName", "brokerName", "field", "value", "epoch", "eventTime", "setBy")
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
_DIFF_TITLES: Final = ("Table", "", "Key", "Change")


def show_changes(
    pages: Iterable[list[dict[str, Any]]],
    form: Form,
    limit: int | None,
    zone: tzinfo | None,
    events_not_in_tables: Callable[[], int],
) -> None:
    """Print changes.

    Args:
        pages: Changes, newest first.
        form: Table, JSON with one object per line, or CSV.
        limit: Maximum number. None: all.
        zone: Time zone of the table.
        events_not_in_tables: Number of events that may have changes and are not in the tables yet.
    """
    if form is not Form.TABLE:
        from lake.history.change_json import CHANGE_COLUMNS

        write_rows(limited(pages, limit), form, CHANGE_COLUMNS)
        return
    shown, has_more = first_rows(pages, limit)
    if not shown:
        print("no change found")
        if behind := events_not_in_tables():
            print(f"the tables do not have the last {behind} events yet: ask again, or see GET /healthz/fold")
        return
    write_table(_CHANGE_TITLES, [_change_row(list(alike), zone) for _, alike in groupby(shown, _likeness)])
    print(f"times are of {zone_text(time_of(shown[0]['eventTime']), zone)}")
    if has_more:
        print(f"there are older ones. Set --limit to show more ({limit})")


def show_timeline(pages: Iterable[list[dict[str, Any]]], form: Form, limit: int | None, zone: tzinfo | None) -> None:
    """Print intervals.

    Args:
        pages: Intervals, newest first.
        form: Table, JSON with one object per line, or CSV.
        limit: Maximum number. None: all.
        zone: Time zone of the table.
    """
    if form is not Form.TABLE:
        found = list(limited(pages, limit))
        states = [name for name in next(chain.from_iterable(found), {}) if name not in _TIMELINE_COLUMNS]
        write_rows(found, form, (*_TIMELINE_COLUMNS, *states))
        return
    shown, has_more = first_rows(pages, limit)
    if not shown:
        print("no state found")
        return
    write_table(
        ("From", "To", "Epoch", "Command", "By", "State"),
        [
            (
                local_text(time_of(row["from"]), zone),
                "still" if row["to"] is None else local_text(time_of(row["to"]), zone),
                row["fromEpoch"],
                row["begunBy"]["command"],
                who(row["begunBy"]["actor"] or {}),
                plain_text(_state(row)),
            )
            for row in shown
        ],
    )
    print(f"times are of {zone_text(time_of(shown[0]['from']), zone)}")
    if has_more:
        print(f"there are older ones. Set --limit to show more ({limit})")


def show_blame(found: Mapping[str, Any], form: Form, zone: tzinfo | None) -> None:
    """Print the fields of a route. JSON is one object, as in HTTP."""
    if form is Form.JSON:
        print(json.dumps(found, ensure_ascii=False))
        return
    if form is Form.CSV:
        write_rows([found["fields"]], form, _BLAME_COLUMNS)
        return
    write_table(
        ("Broker", "Field", "Value", "Since", "Epoch", "Command", "By"),
        [
            (
                row["brokerName"],
                row["field"],
                row["value"] if isinstance(row["value"], str) else json.dumps(row["value"]),
                local_text(time_of(row["eventTime"]), zone),
                row["epoch"],
                row["setBy"]["command"],
                who(row["setBy"]["actor"] or {}),
            )
            for row in found["fields"]
        ],
    )
    point = found["asOf"]
    time = time_of(point["eventTime"])
    print(f"as of epoch {point['epoch']} of {local_text(time, zone)}, {zone_text(time, zone)}")


def show_diff(pages: Iterable[DiffPage], form: Form, limit: int | None, zone: tzinfo | None) -> None:
    """Print differences. The arguments are those of `show_changes`. JSON is one object, as in HTTP."""
    remaining = iter(pages)
    first = next(remaining)
    rest = chain([first.differences], (page.differences for page in remaining))
    if form is Form.CSV:
        from lake.history.change_json import DIFFERENCE_COLUMNS

        write_rows(limited(rest, limit), form, DIFFERENCE_COLUMNS)
        return
    if form is Form.JSON:
        rows = list(chain.from_iterable(limited(rest, limit)))
        print(json.dumps({"from": first.before, "to": first.after, "differences": rows}, ensure_ascii=False))
        return
    shown, has_more = first_rows(rest, limit)
    if shown:
        marks = {"i": "+", "d": "-", "u": "~"}
        write_table(
            _DIFF_TITLES,
            [(row["tableName"], marks[row["op"]], key_text(row["key"]), values_text(row)) for row in shown],
        )
    else:
        print("nothing is different")
    times = [
        f"epoch {point['epoch']} of {local_text(time_of(point['eventTime']), zone)}"
        for point in (first.before, first.after)
    ]
    print(f"from {times[0]} to {times[1]}, {zone_text(time_of(first.after['eventTime']), zone)}")
    if has_more:
        print(f"there are more. Set --limit to show more ({limit})")


def key_text(key: Mapping[str, Any]) -> str:
    """Return the values of a key or of a command as text."""
    return plain_text(" ".join(_value(value) for value in key.values() if value is not None))


def values_text(row: Mapping[str, Any]) -> str:
    """Return changed values, such as ``perm 6 -> 4``. For an added or removed row, return all values."""
    before, after = row.get("before"), row.get("after")
    if before is None and after is None:
        return ""
    if before is None or after is None:
        values = before if after is None else after
        mark = "-" if after is None else "+"
        return plain_text(" ".join([mark, *(f"{name}={_value(value)}" for name, value in (values or {}).items())]))
    changed = [
        f"{name} {_value(before.get(name))} -> {_value(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return plain_text(", ".join(changed))


def _change_row(rows: list[dict[str, Any]], zone: tzinfo | None) -> tuple[object, ...]:
    """Return one line for rows that differ only in their topics."""
    row = rows[0]
    if len(rows) > 1:
        names = sorted(str(each.get("topic")) for each in rows)[:_SHOWN_TOPICS]
        more = f" and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
        target = f"{row.get('brokerName') or ''} {', '.join(names)}{more}"
    else:
        target = key_text(row.get("key") or {})
    reason = f" ({row['reason']})" if row.get("reason") else ""
    return (
        local_text(time_of(row["eventTime"]), zone),
        row["epoch"],
        row["command"],
        f"{row['outcome']}{reason}",
        who(row.get("actor") or {}),
        row.get("tableName", ""),
        target,
        values_text(row),
    )


def who(actor: Mapping[str, Any]) -> str:
    """Return user and address, or the gateway."""
    user, peer = actor.get("user"), actor.get("peer")
    if user and peer:
        return f"{user} {peer}"
    return str(user or peer or actor.get("gateway") or "")


def _likeness(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the grouping key of a row. Neighbours with equal keys share a line, as an expiry changes many topics."""
    if not row.get("topic") or not row.get("tableName"):
        return (row["epoch"], row["offset"], row["seq"], row.get("brokerName"), row.get("tableName"))
    same = ("epoch", "offset", "eventTime", "command", "brokerName", "tableName")
    return (*(row.get(name) for name in same), values_text(row))


def limited(pages: Iterable[list[dict[str, Any]]], limit: int | None) -> Iterator[list[dict[str, Any]]]:
    """Yield at most ``limit`` rows, and read no more pages than needed."""
    left = limit
    for page in pages:
        if left is None:
            yield page
            continue
        yield page[:left]
        left -= len(page)
        if left <= 0:
            return


def first_rows(pages: Iterable[list[dict[str, Any]]], limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    """Return the first ``limit`` rows, and whether there are more."""
    rows = list(chain.from_iterable(limited(pages, None if limit is None else limit + 1)))
    return (rows, False) if limit is None else (rows[:limit], len(rows) > limit)


def write_rows(pages: Iterable[list[dict[str, Any]]], form: Form, columns: tuple[str, ...]) -> None:
    """Write pages as CSV, or as JSON with one object per line."""
    from lake.history.change_json import csv_text

    for at, page in enumerate(pages):
        if form is Form.CSV:
            text = csv_text(columns, page)
            sys.stdout.write(text if at == 0 else text.partition("\r\n")[2])
        else:
            sys.stdout.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in page)


def _value(value: Any) -> str:  # noqa: ANN401 (JSON)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def plain_text(text: str) -> str:
    """Return a text for a cell: without control characters, and shortened if it is too long."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."


def time_of(text: str) -> datetime:
    """Parse a time of an answer."""
    return datetime.fromisoformat(text)


def _state(row: Mapping[str, Any]) -> str:
    """Return the state of a topic, such as ``writable readable, 8 to write, ...``, or of a broker."""
    if "alive" in row:
        alive = ", ".join(each["brokerAddr"] for each in row["live"])
        known = " ".join(f"{key}={value}" for key, value in (row["brokerAddrs"] or {}).items())
        return f"alive: {alive} ({known})" if alive else f"no address alive ({known})" if known else "gone"
    if not row["brokers"]:
        return "gone"
    can = [name for name in ("writable", "readable") if row[name]] or ["neither writable nor readable"]
    brokers = ", ".join(each["brokerName"] for each in row["brokers"])
    return f"{' '.join(can)}, {row['writeQueueNums']} to write, {row['readQueueNums']} to read, on {brokers}"


def time_zone(name: str) -> tzinfo | None:
    """Return a time zone by its name in the IANA database. An empty name means this machine's zone (None).

    Raises:
        SetupError: The database has no zone of that name.
    """
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        what = f"--time-zone {name!r}: unknown time zone. Use a name such as UTC or Asia/Shanghai"
        raise SetupError(what) from error


def point_in_time(text: str, option: str, now: datetime, zone: tzinfo | None) -> str:
    """Return a point in time for parameters such as ``as_of``: an epoch, ``now``, or an RFC 3339 time in UTC.

    Args:
        text: Text on the command line.
        option: Name of the option, for errors.
        now: Base of relative times, with a time zone.
        zone: Zone of times without a zone. None: this machine's.

    Raises:
        SetupError: The text is not a point in time.
    """
    found = text.strip().lower()
    if found == "now" or re.fullmatch(r"[0-9]{1,9}", found):
        return found
    time = _parse_time(found, now, zone)
    if time is None:
        raise SetupError(f"{option} {text!r} is not a point in time; write {EXPECTED}")
    return time.isoformat().replace("+00:00", "Z")


def local_text(time: datetime, zone: tzinfo | None) -> str:
    """Return a local time with milliseconds and without its zone. The output has the zone once, from `zone_text`."""
    return time.astimezone(zone).isoformat(sep=" ", timespec="milliseconds")[:23]


def zone_text(time: datetime, zone: tzinfo | None) -> str:
    """Return the zone at a time, such as ``CET (UTC+01:00)``."""
    local = time.astimezone(zone)
    offset = local.isoformat()[-6:]
    name = str(zone) if isinstance(zone, ZoneInfo) else local.tzname() or ""
    return "UTC" if name == "UTC" else f"{name} (UTC{offset})"


def _parse_time(text: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    """Parse a time, and return it in UTC, or None."""
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
    """Combine day and time. Without a time it is midnight. Without a day it is the last such time."""
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

# SPDX-License-Identifier: Apache-2.0
"""What `routelake history` prints: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from enum import StrEnum
from itertools import chain, groupby
from typing import Any, Final

from cli.admin.report import write_table
from cli.history.source import DiffPage
from cli.history.times import local_text, zone_text

_SHOWN_TOPICS: Final = 3
_SHOWN_TEXT: Final = 200
_CHANGE_TITLES: Final = ("Time", "Epoch", "Command", "Result", "By", "Table", "Target", "Change")
_DIFF_TITLES: Final = ("Table", "", "Key", "Change")


class Form(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def show_changes(pages: Iterable[list[dict[str, Any]]], form: Form, limit: int | None, zone: tzinfo | None) -> None:
    """Print changes.

    Args:
        pages: Of them, newest first.
        form: A table; an object a line; CSV.
        limit: How many at most; None: all.
        zone: Of times in the table.
    """
    if form is not Form.TABLE:
        from lake.history.change_json import CHANGE_COLUMNS

        write_rows(limited(pages, limit), form, CHANGE_COLUMNS)
        return
    shown, has_more = first_rows(pages, limit)
    if not shown:
        print("nothing changed")
        return
    write_table(_CHANGE_TITLES, [_change_row(list(alike), zone) for _, alike in groupby(shown, _likeness)])
    print(f"times are of {zone_text(time_of(shown[0]['eventTime']), zone)}")
    if has_more:
        print(f"there are older ones; --limit says how many to show ({limit})")


def show_diff(pages: Iterable[DiffPage], form: Form, limit: int | None, zone: tzinfo | None) -> None:
    """Print what is different; arguments as `show_changes`. JSON is one object, as HTTP has it."""
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
    moments = [
        f"epoch {cut['epoch']} of {local_text(time_of(cut['eventTime']), zone)}" for cut in (first.before, first.after)
    ]
    print(f"from {moments[0]} to {moments[1]}, {zone_text(time_of(first.after['eventTime']), zone)}")
    if has_more:
        print(f"there are more; --limit says how many to show ({limit})")


def key_text(key: Mapping[str, Any]) -> str:
    """A key's values, or a command's."""
    return plain_text(" ".join(_value(value) for value in key.values() if value is not None))


def values_text(row: Mapping[str, Any]) -> str:
    """What changed: ``perm 6 -> 4``; of a row that came or went, all it has."""
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
    """A line for rows that differ in their topics alone."""
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
    """User and address, or the gateway."""
    user, peer = actor.get("user"), actor.get("peer")
    if user and peer:
        return f"{user} {peer}"
    return str(user or peer or actor.get("gateway") or "")


def _likeness(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Neighbours with this in common are one line: an expiry changes a row for each topic."""
    if not row.get("topic") or not row.get("tableName"):
        return (row["epoch"], row["offset"], row["seq"], row.get("brokerName"), row.get("tableName"))
    same = ("epoch", "offset", "eventTime", "command", "brokerName", "tableName")
    return (*(row.get(name) for name in same), values_text(row))


def limited(pages: Iterable[list[dict[str, Any]]], limit: int | None) -> Iterator[list[dict[str, Any]]]:
    """No more than so many rows, and no page more than is needed for them."""
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
    """So many rows of a table, and whether there are more."""
    rows = list(chain.from_iterable(limited(pages, None if limit is None else limit + 1)))
    return (rows, False) if limit is None else (rows[:limit], len(rows) > limit)


def write_rows(pages: Iterable[list[dict[str, Any]]], form: Form, columns: tuple[str, ...]) -> None:
    """Pages as CSV or as JSON, an object a line."""
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
    """For a cell: nothing that a terminal would obey, and not too long."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."


def time_of(text: str) -> datetime:
    """A time of an answer."""
    return datetime.fromisoformat(text)

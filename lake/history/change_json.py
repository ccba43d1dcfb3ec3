# SPDX-License-Identifier: Apache-2.0
"""JSON objects and CSV lines for changes and differences, for all clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from lake.history.as_of import AsOf, rfc3339
from lake.history.changelog import Change
from lake.history.diff import Difference
from lake.history.provenance import Field
from lake.history.timeline import Interval
from schemas.kv import is_reserved

CHANGE_COLUMNS: Final = (
    *("epoch", "offset", "seq", "eventTime", "command", "outcome", "reason"),
    *("gateway", "via", "peer", "user"),
    *("tableName", "brokerName", "topic", "key", "before", "after"),
)
"""CSV columns: members of `change_members`, with the members of ``actor`` in place of it."""
DIFFERENCE_COLUMNS: Final = ("tableName", "op", "key", "before", "after")

FORMULA: Final = re.compile(
    r"^[\s\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\u0022'\u2018-\u201f\uff02\uff07]*"
    r"[=+\-@\t\r\n\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20]"
)
"""Start of a text that a spreadsheet may read as a formula: a sign, maybe full-width, after any blanks and quotes."""
_QUOTED: Final = re.compile(r'[",;\t\r\n]')

HIDDEN: Final = "***"
"""Replacement for a value that the client may not read."""

_encode = msgspec.json.Encoder().encode


def change_members(change: Change) -> dict[str, Any]:
    """A change as one JSON object. Members without a value are left out."""
    found = {**msgspec.to_builtins(change), "eventTime": rfc3339(change.event_time)}
    return {name: value for name, value in found.items() if value is not None}


def difference_members(difference: Difference) -> dict[str, Any]:
    """A difference as one JSON object. ``before`` or ``after`` is null if there is no row."""
    found: dict[str, Any] = msgspec.to_builtins(difference)
    return found


def point_members(point: AsOf) -> dict[str, Any]:
    """JSON members that name the resolved point in time."""
    return {"epoch": point.commit.epoch, "eventTime": rfc3339(point.commit.event_time)}


def interval_members(interval: Interval) -> dict[str, Any]:
    """A state in a timeline, as its own members and its interval. A null end means the present state."""
    return {
        "from": rfc3339(interval.from_),
        "to": None if interval.to is None else rfc3339(interval.to),
        "fromEpoch": interval.from_epoch,
        "toEpoch": interval.to_epoch,
        "begunBy": msgspec.to_builtins(interval.begun_by),
        "endedBy": None if interval.ended_by is None else msgspec.to_builtins(interval.ended_by),
        **interval.state,
    }


def field_members(field: Field) -> dict[str, Any]:
    """A field of a row, and the change that set it."""
    return {**msgspec.to_builtins(field), "eventTime": rfc3339(field.event_time)}


def without_settings(row: dict[str, Any]) -> dict[str, Any]:
    """Hide the value of a KV setting in a change or difference. Other rows are returned unchanged.

    Args:
        row: Result of `change_members` or `difference_members`.
    """
    key = row.get("key") or {}
    if not is_reserved(key.get("namespace")):
        return row
    return {
        **row,
        **{name: _hidden(row[name]) for name in ("key", "before", "after") if row.get(name) is not None},
    }


def csv_line(cells: Iterable[Any]) -> str:
    """Format a line of CSV. Objects become JSON text, null becomes empty.

    All CSV of the product is made here (the console has the same rule in table.js). Any client that registers a broker
    chooses names. So a text that a spreadsheet may read as a formula gets an apostrophe first. Numbers stay numbers.
    """
    return ",".join(map(_cell, cells)) + "\r\n"


def csv_text(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format rows as CSV (RFC 4180): a line of names, then a line for each row.

    Args:
        columns: Names of members, or of members of ``actor``.
        rows: Results of `change_members` or `difference_members`.
    """
    names = list(columns)
    found = [csv_line(names)]
    for row in rows:
        members = {**(row.get("actor") or {}), **row}
        found.append(csv_line(members.get(name) for name in names))
    return "".join(found)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Format rows as one JSON object per line."""
    return b"".join(_encode(row) + b"\n" for row in rows)


def _hidden(members: dict[str, Any]) -> dict[str, Any]:
    return members if members.get("value") is None else {**members, "value": HIDDEN}


def _cell(value: Any) -> str:  # noqa: ANN401 (JSON)
    if value is None:
        return ""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        text = str(value)  # of any size
    elif not isinstance(value, str):
        text = _encode(value).decode()
    else:
        text = f"'{value}" if FORMULA.match(value) else value
    # In some languages, semicolons or tabs separate cells, as numbers contain commas.
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text

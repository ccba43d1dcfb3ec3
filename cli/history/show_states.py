# SPDX-License-Identifier: Apache-2.0
"""What `routelake history timeline` and `blame` print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from itertools import chain
from typing import Any, Final

from cli.admin.report import write_table
from cli.history.show import Form, first_rows, limited, plain_text, time_of, who, write_rows
from cli.history.times import local_text, zone_text

_TIMELINE_COLUMNS: Final = ("from", "to", "fromEpoch", "toEpoch", "begunBy", "endedBy")
_BLAME_COLUMNS: Final = ("tableName", "brokerName", "field", "value", "epoch", "eventTime", "setBy")


def show_timeline(pages: Iterable[list[dict[str, Any]]], form: Form, limit: int | None, zone: tzinfo | None) -> None:
    """Print intervals.

    Args:
        pages: Of them, newest first.
        form: A table; an object a line; CSV.
        limit: How many at most; None: all.
        zone: Of times in the table.
    """
    if form is not Form.TABLE:
        found = list(limited(pages, limit))
        states = [name for name in next(chain.from_iterable(found), {}) if name not in _TIMELINE_COLUMNS]
        write_rows(found, form, (*_TIMELINE_COLUMNS, *states))
        return
    shown, has_more = first_rows(pages, limit)
    if not shown:
        print("there is nothing")
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
        print(f"there are older ones; --limit says how many to show ({limit})")


def show_blame(found: Mapping[str, Any], form: Form, zone: tzinfo | None) -> None:
    """Print the fields of a route. JSON is one object, as HTTP has it."""
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
    cut = found["asOf"]
    time = time_of(cut["eventTime"])
    print(f"as of epoch {cut['epoch']} of {local_text(time, zone)}, {zone_text(time, zone)}")


def _state(row: Mapping[str, Any]) -> str:
    """``writable readable 8/8 on broker-a, broker-b``, or a broker's."""
    if "alive" in row:
        alive = ", ".join(each["brokerAddr"] for each in row["live"])
        known = " ".join(f"{key}={value}" for key, value in (row["brokerAddrs"] or {}).items())
        return f"alive: {alive} ({known})" if alive else f"no address alive ({known})" if known else "gone"
    if not row["brokers"]:
        return "gone"
    can = [name for name in ("writable", "readable") if row[name]] or ["neither writable nor readable"]
    brokers = ", ".join(each["brokerName"] for each in row["brokers"])
    return f"{' '.join(can)}, {row['writeQueueNums']} to write, {row['readQueueNums']} to read, on {brokers}"

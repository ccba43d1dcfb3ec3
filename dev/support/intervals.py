# SPDX-License-Identifier: Apache-2.0
"""The tables of intervals of a lake against its changes, one by one, and against its state."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.support import lakes
from schemas.intervals import INTERVALS, Intervals

Rows = list[dict[str, Any]]


def place(intervals: Intervals) -> Callable[[dict[str, Any]], Any]:
    """An order of rows, in which no two are equal."""
    names = (*intervals.source.key, "fromEpoch", "validFrom", "fromOffset", "isOpen")
    return lambda row: (*(row[name] for name in names), str(row))


def kept(lake_dir: Path, intervals: Intervals) -> Rows:
    found = lakes.rows(lake_dir, intervals.table.name)
    return sorted(found, key=place(intervals))


def expected(lake_dir: Path, intervals: Intervals) -> Rows:
    """From the changes, one by one."""
    rows = [row for row in lakes.history(lake_dir) if row["tableName"] == intervals.source.name]
    rows.sort(key=lambda row: (row["epoch"], row["eventTime"], row["offset"], row["seq"]))
    open_rows: dict[str, dict[str, Any]] = {}
    found: Rows = []
    for row in rows:
        before, after = (
            None if row[name] is None else {column: json.loads(row[name]).get(column) for column in intervals.state}
            for name in ("before", "after")
        )
        if before == after:
            continue
        ended = open_rows.pop(row["key"], None)
        assert (ended is None) == (before is None)
        if ended is not None:
            ended |= {
                "validTo": row["eventTime"],
                "toEpoch": row["epoch"],
                "toOffset": row["offset"],
                "endedBy": row["command"],
                "endedByActor": row["actor"],
                "isOpen": False,
            }
        if after is not None:
            if after.get("brokerAddrs") is not None:
                after["brokerAddrs"] = [(int(key), addr) for key, addr in after["brokerAddrs"].items()]
            begun = {
                **json.loads(row["key"]),
                **after,
                **dict.fromkeys(("validTo", "toEpoch", "toOffset", "endedBy", "endedByActor")),
                "validFrom": row["eventTime"],
                "fromEpoch": row["epoch"],
                "fromOffset": row["offset"],
                "begunBy": row["command"],
                "begunByActor": row["actor"],
                "isOpen": True,
            }
            open_rows[row["key"]] = begun
            found.append(begun)
    return sorted(found, key=place(intervals))


def columns(rows: Rows) -> Rows:
    return [dict(sorted(row.items())) for row in rows]


@lakes.read_once()
def assert_kept(lake_dir: Path) -> None:
    for intervals in INTERVALS:
        found = kept(lake_dir, intervals)
        assert columns(found) == columns(expected(lake_dir, intervals)), intervals.table.name
        by_key: dict[tuple[Any, ...], Rows] = defaultdict(list)
        for row in found:
            by_key[tuple(row[name] for name in intervals.source.key)].append(row)
        for rows in by_key.values():
            rows.sort(key=lambda row: (row["validFrom"], row["validTo"] is None, row["validTo"]))
            assert [row["validTo"] for row in rows[:-1]].count(None) == 0, "only the last one is open"
            assert all(row["validTo"] <= after["validFrom"] for row, after in itertools.pairwise(rows))
            assert all(row["isOpen"] == (row["validTo"] is None) for row in rows)


@lakes.read_once()
def assert_now(lake_dir: Path) -> None:
    """Open intervals are the state."""
    tables = lakes.last_epoch_tables(lake_dir)
    for intervals in INTERVALS:
        names = (*intervals.source.key, *intervals.state)
        opened = [row for row in kept(lake_dir, intervals) if row["isOpen"]]
        found = sorted(str([lakes.plain(row[name]) for name in names]) for row in opened)
        at = [intervals.source.value_columns.index(name) for name in intervals.state]
        state = [[*key, *(values[place] for place in at)] for key, values in tables[intervals.source.name].items()]
        assert found == sorted(map(str, state))

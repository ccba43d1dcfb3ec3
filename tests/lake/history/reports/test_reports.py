# SPDX-License-Identifier: Apache-2.0
"""The reports on a small lake, word for word, and their pages."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from dev.support.tables_page import START, after
from lake.history.intervals import rebuild
from lake.history.report_duckdb import DuckLake, rows_by_duckdb
from lake.history.report_html import MAX_ROWS, page
from lake.history.reports import BY_NAME, REPORTS, query_of
from schemas.intervals import INTERVAL_TABLES

END = after(3900)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x comes and goes twice, with the only copies of S and T; b has U, which is wiped for a while, and deletes V."""
    folder = tmp_path_factory.mktemp("reports") / "lake"
    x = make.register("x:1", name="x", table=make.topics("S", "T"), heartbeat_timeout_millis=59_999)
    events = [
        (0, make.register(table=make.topics("U", "V"))),
        (10, x),
        (60, make.heartbeat()),
        (60, make.heartbeat()),
        (10, make.clock()),  # 140: x has expired at 70
        (10, x),
        (10, make.wipe()),  # 160
        (20, make.add()),  # 180
        (60, make.heartbeat()),  # 240: x has expired at 210
        (10, x),
        (3600, make.resume()),
        (10, make.delete_topic("V")),  # 3860
    ]
    drive(folder, [[record] for record in written([(after_s * 1000, event) for after_s, event in events])])
    rebuild(folder, lambda epoch, last: None)
    return folder


def ask(lake: Path, name: str, since: datetime = START, until: datetime = END, **more: int) -> list[Any]:
    columns, rows = rows_by_duckdb(lake, query_of(BY_NAME[name], since, until, **more))
    assert set(BY_NAME[name].values) | {BY_NAME[name].label} <= set(columns)
    return rows


def test_flapping(lake: Path) -> None:
    assert ask(lake, "flapping") == []
    assert ask(lake, "flapping", times=1) == [("x", "c", "x:1", 2, 2, 120.0, 80.0, after(70), after(250), 5, 10)]
    assert ask(lake, "flapping", times=0, until=after(200)) == [
        ("x", "c", "x:1", 1, 1, 80.0, 80.0, after(70), after(150), 5, 6)
    ]
    assert ask(lake, "flapping", times=0, since=after(150), until=after(249)) == []  # it is back at 250


def test_unavailable(lake: Path) -> None:
    expired = ("BROKER_EXPIRED", None, "REGISTER_BROKER")
    wiped = ("WIPE_WRITE_PERM_OF_BROKER", "10.9.9.9", "ADD_WRITE_PERM_OF_BROKER")
    assert ask(lake, "unavailable") == [
        ("S", "no broker", after(70), after(150), 80.0, *expired, 5, 6),  # noticed by CLOCK
        ("T", "no broker", after(70), after(150), 80.0, *expired, 5, 6),
        ("S", "no broker", after(210), after(250), 40.0, *expired, 10, 10),  # noticed by its own registration
        ("T", "no broker", after(210), after(250), 40.0, *expired, 10, 10),
        ("U", "not writable", after(160), after(180), 20.0, *wiped, 7, 8),
        ("V", "not writable", after(160), after(180), 20.0, *wiped, 7, 8),
    ]
    cut = ask(lake, "unavailable", since=after(100), until=after(170))
    assert [(*row[:5], *row[7:]) for row in cut] == [
        ("S", "no broker", after(100), after(150), 50.0, "REGISTER_BROKER", 5, 6),
        ("T", "no broker", after(100), after(150), 50.0, "REGISTER_BROKER", 5, 6),
        ("U", "not writable", after(160), None, 10.0, None, 7, 7),
        ("V", "not writable", after(160), None, 10.0, None, 7, 7),
    ]


def test_churn(lake: Path) -> None:
    first, second = (START.replace(hour=hour, minute=0, second=0, microsecond=0) for hour in (22, 23))
    assert ask(lake, "churn", START - timedelta(seconds=1)) == [
        (first, 4, 0, 4, 4, 4, 1, 10),
        (second, 0, 1, 0, 0, 0, 12, 12),
    ]
    assert ask(lake, "churn", after(100), after(200)) == [(first, 0, 0, 0, 2, 0, 6, 6)]


def test_expiry(lake: Path) -> None:
    assert ask(lake, "expiry") == [
        ("x", "c", "x:1", "BROKER_EXPIRED", after(70), after(150), 80.0, 2, 5, 6),
        ("x", "c", "x:1", "BROKER_EXPIRED", after(210), after(250), 40.0, 2, 10, 10),
    ]
    (row,) = ask(lake, "expiry", until=after(100))
    assert row[5:] == (None, 30.0, 2, 5, 5)


def test_peers(lake: Path) -> None:
    (row,) = ask(lake, "peers", START - timedelta(seconds=1))
    assert row[:2] == ("10.9.9.9", None)
    assert row[3:7] == (4, 0, 4, 2)  # commands, refusals, topics, brokers
    assert row[7:] == (START, after(3860), 1, 12)


def test_refused(tmp_path: Path) -> None:
    again = make.register("n:1", name="n", table=make.topics("one"))
    drive(tmp_path, [[record] for record in written([(0, make.register()), (1_000, again), (1_000, again)])])
    ((command, reason, broker, address, user, *rest),) = ask(tmp_path, "refused")
    assert (command, reason, broker) == ("REGISTER_BROKER", "SINGLE_TOPIC_REFUSED", "n")
    assert (address, user, *rest) == ("10.9.9.9", None, 2, after(1), after(2), 2, 3)


def test_intervals_beside_the_tables(lake: Path) -> None:
    with DuckLake(lake) as duck:
        for table in INTERVAL_TABLES:
            duck.connection.execute(f"SELECT * FROM {table.name}").fetchall()
        alive = duck.connection.execute(
            "SELECT validFrom, validTo, endedBy FROM brokerLiveHistory WHERE brokerName = 'x' ORDER BY validFrom"
        ).fetchall()
    assert alive == [
        (after(10), after(70), "BROKER_EXPIRED"),
        (after(150), after(210), "BROKER_EXPIRED"),
        (after(250), None, None),
    ]


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def html(name: str, columns: list[str], rows: list[Any]) -> str:
    return page(BY_NAME[name], columns, rows, window="from a < b", query="SELECT 1 < 2", time_text=str)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_pages(lake: Path, report: Any) -> None:
    query = query_of(report, START, END, 0)
    columns, rows = rows_by_duckdb(lake, query)
    text = html(report.name, columns, rows)
    tags = Tags(text)
    assert tags.open == []
    assert not re.search(r"<script|https?://|src=|href=|@import|url\(", text)
    assert len([tag for tag, _ in tags.seen if tag == "tr"]) == (len(rows) + 1 if rows else 0)
    assert ("svg" in [tag for tag, _ in tags.seen]) == bool(rows)


def test_a_page_of_hostile_names() -> None:
    name = "<script>alert(1)</script>\"'&\x1b[31m"
    text = html("peers", ["address", "changedRows"], [(name, 3)] * (MAX_ROWS + 1))
    assert Tags(text).open == []
    assert "<script" not in text
    assert "\x1b" not in text
    assert "There are 1 more rows" in text


def test_bars() -> None:
    rows = [(f"t{number:02}", 1000.0 * number) for number in range(30)]
    text = html("unavailable", ["topic", "seconds"], rows)
    widths = [float(attrs["width"] or 0) for tag, attrs in Tags(text).seen if tag == "rect"]
    assert widths == sorted(widths, reverse=True)
    assert len(widths) == 24
    assert "The chart has the 24 largest of 30." in text
    assert "29\N{NARROW NO-BREAK SPACE}000.0" in text
    assert "<svg" not in html("unavailable", ["topic", "seconds"], [("t", 0.0)])

# SPDX-License-Identifier: Apache-2.0
"""The reports in DataFusion: the same rows in the same order as DuckDB's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipelines.reports.datafusion import Cut, TooManyTopicsError, rows_by_datafusion
from pipelines.reports.duck import DuckLake, rows_by_duckdb
from pipelines.reports.reports import BY_NAME, REPORTS, TIME_COLUMNS, query_of, topics_of
from tests.pipelines.reports.conftest import Told
from tests.support import events as make
from tests.support.drive import drive
from tests.support.generated_logs import written
from tests.support.tables_page import START, after

END = after(7_300)
ALL = Cut(epoch=2**40, limit=10**6)
WINDOWS = {"all": (START.replace(year=1970), END), "half an hour": (after(3_690), after(5_490))}


def by_datafusion(lake: Path, name: str, since: datetime, until: datetime, cut: Cut = ALL) -> Any:
    report = BY_NAME[name]
    changes = DeltaTable(str(lake / "routeChangeTable"))
    return rows_by_datafusion(changes, query_of(report, since, until, 0), topics_of(report, since, until), cut)


def by_duckdb(duck: DuckLake, name: str, since: datetime, until: datetime) -> Any:
    found = duck.connection.execute(query_of(BY_NAME[name], since, until, 0))
    return [column[0] for column in found.description or []], found.fetchall()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", BY_NAME)
def test_as_duckdb(told: Told, name: str, window: str) -> None:
    columns, rows = by_datafusion(told.folder / "lake", name, *WINDOWS[window])
    assert (columns, rows) == by_duckdb(told.duck, name, *WINDOWS[window])
    assert rows or name == "refused"  # see below
    assert {
        column for row in rows for column, value in zip(columns, row, strict=True) if isinstance(value, datetime)
    } <= TIME_COLUMNS


def test_a_part(told: Told) -> None:
    lake = told.folder / "lake"
    _, rows = by_datafusion(lake, "alive", *WINDOWS["all"])
    assert by_datafusion(lake, "alive", *WINDOWS["all"], Cut(2**40, 5, skip=3))[1] == rows[3:8]
    assert by_datafusion(lake, "alive", *WINDOWS["all"], Cut(1, 1_000))[1][-1][1] is None  # as epoch 1 knew it


def test_names_that_would_be_json(tmp_path: Path) -> None:
    """Over the wire a cluster may be called anything."""
    odd = ['a"b', "a\\", '","brokerAddr":"x:9', '\\"brokerAddr\\":\\', "\u20ac\x01'"]
    again = [
        event
        for place, cluster in enumerate(odd)
        for event in (
            make.register(f"h{place}:1", name=f"n{place}", cluster=cluster, table=make.topics("T")),
            make.register(f"h{place}:1", name=f"n{place}", cluster=cluster),
            make.unregister(f"h{place}:1", name=f"n{place}", cluster=cluster),
            make.register(f"h{place}:1", name=f"n{place}", cluster=cluster),
        )
    ]
    drive(tmp_path, [written([(1_000, event) for event in again])])
    for report in REPORTS:
        columns, rows = rows_by_duckdb(tmp_path, query_of(report, START, END, 0))
        assert by_datafusion(tmp_path, report.name, START, END) == (columns, rows)
        if report.name == "flapping":
            assert sorted(row[1] for row in rows) == sorted(odd)
        assert rows or report.name in ("expiry", "uneven", "refused")


def test_refusals(tmp_path: Path) -> None:
    again = make.register("n:1", name="n", table=make.topics("one"))
    drive(tmp_path, [[record] for record in written([(0, make.register()), (1_000, again), (1_000, again)])])
    found = by_datafusion(tmp_path, "refused", START, END)
    assert found == rows_by_duckdb(tmp_path, query_of(BY_NAME["refused"], START, END))
    assert found[1]


def test_more_topics_than_it_tells_of(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.reports.datafusion.MAX_TOPICS", 10)
    for name in ("unavailable", "churn", "uneven"):
        with pytest.raises(TooManyTopicsError):
            by_datafusion(told.folder / "lake", name, *WINDOWS["all"])

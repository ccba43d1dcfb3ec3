# SPDX-License-Identifier: Apache-2.0
"""The reports in DataFusion: the same rows in the same order as DuckDB's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from dev.support.loops import until
from dev.support.tables_page import START, after
from lake.delta.query import Interrupt, InterruptedQueryError, select
from lake.history.report_datafusion import (
    Cut,
    TooManyTopicsError,
    _decoded,
    _in_own_words,
    rows_by_datafusion,
    rows_in_process,
)
from lake.history.report_duckdb import DuckLake, rows_by_duckdb
from lake.history.reports import BY_NAME, REPORTS, TIME_COLUMNS, query_of, topics_of
from schemas.errors import UnavailableError
from tests.lake.history.reports.conftest import Told

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


_TEXT = st.text(alphabet=st.sampled_from('ab"\\\\{}[]:,$\n\u20ac'), max_size=6)
_NAME = st.sampled_from(("brokerAddr", "perm", "broker", "a")) | _TEXT
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAME, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(_NAME, _JSON, max_size=5), min_size=1, max_size=20))
@settings(deadline=None)
@example([{"old": {"brokerAddr": "nested"}, "brokerAddr": "own"}])
@example([{"brokerAddr": "own", "old": {"brokerAddr": "nested"}}, {"old": [{"perm": 2}], "perm": 6}])
@example([{"old": {"perm": 2}}, {"old": {"old": {"old": {"perm": 4}}}, "perm": 6}])
def test_a_member_is_that_of_the_object_itself(members: list[dict[str, Any]]) -> None:
    """As msgspec reads it, whatever is nested beside it under the same name."""
    texts = [msgspec.json.encode(each).decode() for each in members]
    with TemporaryDirectory() as folder:
        write_deltalake(folder, pa.table({"place": range(len(texts)), "json": texts}))
        table = DeltaTable(folder)
        for name in ("brokerAddr", "perm"):
            sql = _in_own_words(f"SELECT get_json_object(json, '$.{name}') AS found FROM t ORDER BY place")
            for each, found in zip(members, select(table, sql)["found"].to_pylist(), strict=True):
                wanted = each.get(name)
                if isinstance(wanted, str):
                    assert _decoded(found) == wanted
                else:
                    assert found == (None if wanted is None else msgspec.json.encode(wanted).decode())


def test_a_report_that_is_to_end_ends_within_its_computation(told: Told) -> None:
    """DataFusion would group 10^12 rows and more, and says nothing before it has."""
    changes = DeltaTable(str(told.folder / "lake" / "routeChangeTable"))
    others = " ".join(f"CROSS JOIN (SELECT * FROM routeChangeTable) AS c{number}" for number in range(2, 6))
    keys = "concat(c1.key, c2.key, c3.key, c4.key, c5.key)"
    query = f"SELECT count(DISTINCT {keys}) AS n FROM routeChangeTable AS c1 {others}"
    interrupt = Interrupt()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(interrupt.run, lambda: rows_in_process(changes, query, "", ALL))
        until(lambda: interrupt._action is not None)
        assert not wait([running], timeout=1.0).done
        interrupt.set()
        assert isinstance(running.exception(30), InterruptedQueryError)


def test_a_report_computed_in_a_process_says_what_it_says_here(told: Told) -> None:
    changes = DeltaTable(str(told.folder / "lake" / "routeChangeTable"))
    report = BY_NAME["churn"]
    asked = (changes, query_of(report, *WINDOWS["all"], 0), topics_of(report, *WINDOWS["all"]), ALL)
    assert rows_in_process(*asked) == rows_by_datafusion(*asked)
    with pytest.raises(UnavailableError, match="cannot be computed"):
        rows_in_process(changes, "SELECT nonsense FROM routeChangeTable", "", ALL)


def test_refusals(tmp_path: Path) -> None:
    again = make.register("n:1", name="n", table=make.topics("one"))
    drive(tmp_path, [[record] for record in written([(0, make.register()), (1_000, again), (1_000, again)])])
    found = by_datafusion(tmp_path, "refused", START, END)
    assert found == rows_by_duckdb(tmp_path, query_of(BY_NAME["refused"], START, END))
    assert found[1]


def test_more_topics_than_it_tells_of(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.history.report_datafusion.MAX_TOPICS", 10)
    for name in ("unavailable", "churn", "uneven"):
        with pytest.raises(TooManyTopicsError):
            by_datafusion(told.folder / "lake", name, *WINDOWS["all"])

# SPDX-License-Identifier: Apache-2.0
"""Reports in a gateway: as of one epoch, within bounds of memory and time, whatever names stand in the tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from dev.support.loops import until
from lake.delta.query import Interrupt, InterruptedQueryError
from lake.history.history import History
from lake.history.report import ReportAsked, report_page
from lake.history.report_duckdb import bounded_views
from schemas.errors import BadRequestError
from tests.lake.history.reports.conftest import Told

pytestmark = pytest.mark.xdist_group("reports")

LAST = 2**40


def changes_of(told: Told) -> DeltaTable:
    return DeltaTable(str(told.folder / "lake" / "routeChangeTable"))


def test_changes_after_the_epoch_are_left_out(told: Told) -> None:
    with bounded_views(changes_of(told), 3) as views:
        assert views.sql("SELECT max(epoch) FROM changes").fetchall() == [(3,)]


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
    found = report_page(History(tmp_path), ReportAsked(name="flapping", times=0))
    assert sorted(row[1] for row in found.rows) == sorted(odd)
    assert sorted(row[2] for row in found.rows) == [f"h{place}:1" for place in range(len(odd))]


@pytest.mark.parametrize(
    ("json", "path", "found"),
    [
        ('{"old":{"brokerAddr":"nested"},"brokerAddr":"own"}', "$.brokerAddr", "own"),
        ('{"brokerAddr":"own","old":{"brokerAddr":"nested"}}', "$.brokerAddr", "own"),
        ('{"old":[{"perm":2}],"perm":6}', "$.perm", "6"),
        ('{"old":{"perm":2}}', "$.perm", None),
        ('{"perm":null}', "$.perm", None),
    ],
)
def test_a_member_is_that_of_the_object_itself(told: Told, json: str, path: str, found: str | None) -> None:
    assert told.duck.connection.execute("SELECT get_json_object(?, ?)", [json, path]).fetchall() == [(found,)]


def test_a_report_that_is_to_end_ends_within_its_computation(told: Told) -> None:
    """It would group 10^12 rows and more."""
    others = " ".join(f"CROSS JOIN routeChangeTable AS c{number}" for number in range(2, 6))
    query = (
        f"SELECT count(DISTINCT concat(c1.key, c2.key, c3.key, c4.key, c5.key)) FROM routeChangeTable AS c1 {others}"
    )

    def work() -> Any:
        with bounded_views(changes_of(told), LAST) as views:
            views.execute("SET memory_limit = '8GB'")
            return views.sql(query).fetchall()

    interrupt = Interrupt()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(interrupt.run, work)
        until(lambda: interrupt._action is not None)
        assert not wait([running], timeout=1.0).done
        interrupt.set()
        assert isinstance(running.exception(30), InterruptedQueryError)


def test_a_report_that_needs_too_much_memory_says_what_to_do(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.history.report_duckdb.MEMORY_LIMIT", "4MB")
    with pytest.raises(
        BadRequestError, match=r"Use a shorter window \(from\), or read the tables: ./routelake history report"
    ):
        report_page(History(told.folder / "lake"), ReportAsked(name="unavailable"))

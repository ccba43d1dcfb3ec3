# SPDX-License-Identifier: Apache-2.0
"""Reports over HTTP: windows, pages, formats, and what is refused. That they are right: tests/lake/history/reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.http.answers import ReportAnswer, ReportsAnswer
from dev.support.http_api import HttpApi, broker, parsed, problem
from dev.support.loops import until
from eventlog.base import now_ms
from lake.history.reports import BY_NAME


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker group registers; is wiped, and given back. Each in a second of its own, with all of its epoch."""
    time_ms = [now_ms()]
    api = HttpApi(tmp_path_factory.mktemp("reports"), clock=lambda: time_ms[0])
    try:
        api.settled()
        api.register(broker(topics=("orders", "refunds")))
        api.settled()
        for command in ("wipe-write-perm", "add-write-perm"):
            time_ms[0] += 1_000
            api.post(f"/v1/brokers/broker-a/{command}")
            api.settled()
        yield api
    finally:
        api.close()


def report(api: HttpApi, asked: str) -> ReportAnswer:
    answer = api.get(f"/v1/reports/{asked}")
    assert answer.status_code == 200, answer.text
    return parsed(answer, ReportAnswer)


def epoch_of(api: HttpApi, command: str) -> int:
    found = api.get(f"/v1/changes?command={command}&limit=1").json()["changes"]
    epoch: int = found[0]["epoch"]
    return epoch


def test_a_window(past: HttpApi) -> None:
    whole = report(past, "unavailable")
    assert whole.from_ is None
    assert [(row["topic"], row["kind"], row["endedBy"]) for row in whole.rows] == [
        (topic, "not writable", "ADD_WRITE_PERM_OF_BROKER") for topic in ("orders", "refunds")
    ]
    then = report(past, f"unavailable?to={epoch_of(past, 'WIPE_WRITE_PERM_OF_BROKER')}")
    assert [(row["validTo"], row["seconds"]) for row in then.rows] == [(None, 0.0)] * 2
    assert then.to == then.rows[0]["validFrom"]
    assert report(past, f"unavailable?from={epoch_of(past, 'ADD_WRITE_PERM_OF_BROKER')}").rows == []
    (alive,) = report(past, "alive").rows
    assert (alive["brokers"], alive["validTo"]) == (1, None)
    assert report(past, "flapping?times=0").rows == []


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two brokers with different queues expire and come back; a third is refused; the tables of each have own epochs."""
    time_ms = [now_ms()]
    api = HttpApi(tmp_path_factory.mktemp("eventful"), clock=lambda: time_ms[0])
    try:
        for counter in (1, 2):
            if counter == 2:
                time_ms[0] += 130_000
                until(lambda: not api.get("/v1/brokers").json()["brokers"])
                api.settled()
            for host, queues in ((1, 4), (2, 8)):
                api.register(broker(f"broker-{host}", topics={"orders": queues, "more": 4}, host=host, counter=counter))
                api.settled()
            api.register(broker("single", topics=("only",), host=9))
            api.settled()
        yield api
    finally:
        api.close()


@pytest.mark.parametrize("name", BY_NAME)
def test_a_definition_leads_to_the_changes_behind_each_row(eventful: HttpApi, name: str) -> None:
    specs = parsed(eventful.get("/v1/reports"), ReportsAnswer).reports
    [spec] = [each for each in specs if each.name == name]
    found = report(eventful, name if spec.times is None else f"{name}?times=0")
    assert found.rows
    assert {spec.label, *spec.values, *spec.filters.values()} <= {*found.columns}
    for row in found.rows:
        asked = spec.fixed_filters | {each: row[column] for each, column in spec.filters.items() if row[column]}
        first = {"from": row["firstEpoch"] - 1} if row["firstEpoch"] > 1 else {}
        asked |= {**first, "to": row["lastEpoch"], "limit": 1000}
        epochs = {change["epoch"] for change in eventful.get("/v1/changes", params=asked).json()["changes"]}
        assert {row["firstEpoch"], row["lastEpoch"]} <= epochs, row


def test_pages(past: HttpApi) -> None:
    first = report(past, "unavailable?limit=1")
    link = past.get("/v1/reports/unavailable?limit=1").headers["link"]
    assert f"cursor={first.next_cursor}" in link
    last = report(past, f"unavailable?limit=1&cursor={first.next_cursor}")
    assert [row["topic"] for row in (*first.rows, *last.rows)] == ["orders", "refunds"]
    assert (last.next_cursor, last.to) == (None, first.to)


def test_formats(past: HttpApi) -> None:
    table = past.get("/v1/reports/unavailable?limit=1", headers={"accept": "text/csv"}).text
    assert table.splitlines()[0].startswith("topic,kind,validFrom,")
    assert past.get("/v1/reports/refused", headers={"accept": "text/csv"}).text.startswith("command,reason,")
    lines = past.get("/v1/reports/unavailable", headers={"accept": "application/x-ndjson"}).text.splitlines()
    assert list(map(json.loads, lines)) == report(past, "unavailable").rows


def test_before_anything_has_happened(tmp_path: Any) -> None:
    api = HttpApi(tmp_path)
    try:
        found = api.get("/v1/reports/alive")
        assert found.json() == {"report": "alive", "columns": [], "rows": []}
    finally:
        api.close()


@pytest.mark.parametrize(
    ("asked", "status", "slug", "words"),
    [
        ("alive?from=2999-01-01T00:00:00Z", 404, "future-time", "is in the future"),
        ("alive?to=99999", 404, "future-epoch", "the newest is"),
        ("alive?from=1999-12-31T23:59:59Z", 404, "before-history", "before the first epoch"),
        ("alive?from=2026-01-01T00:00:00", 400, "bad-parameter", "no offset from UTC"),
        ("alive?from=1767225600", 400, "bad-parameter", "looks like a Unix time"),
        ("alive?from=3&to=1", 400, "bad-parameter", "from must not be after to"),
        ("alive?from=now&to=1", 400, "bad-parameter", "from must not be after to"),
        ("alive?limit=0", 400, "bad-parameter", "limit"),
        ("alive?limit=5001", 400, "bad-parameter", "limit"),
        ("alive?times=1", 400, "bad-parameter", "times: is of flapping"),
        ("flapping?times=-1", 400, "bad-parameter", "times"),
        ("alive?topic=orders", 400, "bad-parameter", "topic"),
        ("alive?cursor=!", 400, "bad-parameter", "cursor is not valid for this list"),
        ("nothing", 400, "bad-parameter", "name"),
    ],
)
def test_what_is_refused(past: HttpApi, asked: str, status: int, slug: str, words: str) -> None:
    answer = past.get(f"/v1/reports/{asked}")
    assert words in problem(answer, status, slug)["detail"]


def test_a_cursor_of_another_question(past: HttpApi) -> None:
    cursor = report(past, "unavailable?limit=1").next_cursor
    for other in ("alive", "unavailable?to=1"):
        answer = past.get(f"/v1/reports/{other}{'&' if '?' in other else '?'}cursor={cursor}")
        assert "cursor is from a query with other parameters" in problem(answer, 400, "bad-parameter")["detail"]

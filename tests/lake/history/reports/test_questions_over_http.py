# SPDX-License-Identifier: Apache-2.0
"""A gateway over the two hours answers the questions of docs/history.md as the tables alone do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from cli import usage
from cli.main import app
from dev.support.local import LocalGateway
from eventlog.memory import MemoryLog
from lake.history.history import History
from lake.history.reports import TIME_COLUMNS
from tests.lake.history.reports.conftest import COMMANDS, Told

pytestmark = pytest.mark.deep  # the lake is built once more where another process has test_questions

ASKED = {question: words for question, words in COMMANDS.items() if not words.startswith("history verify")}


@pytest.fixture(scope="module")
def address(told: Told) -> Iterator[str]:
    """host:port of a gateway whose log has what the lake is made of."""
    now_ms = 0
    log = MemoryLog(lambda: now_ms)
    for record in told.records:
        now_ms = record.event_time_ms
        (appended,) = log.append([(record.key, record.payload)])
        assert appended.offset == record.offset
    gateway = LocalGateway(log, told.folder / "lake", remoting_port=None, http_port=0)
    gateway.start()
    yield f"127.0.0.1:{gateway.http_port}"
    gateway.stop()


def test_route(told: Told, address: str) -> None:
    path = "v1/topics/topic-100/route?as_of=2023-11-14T23:14:50Z"
    with httpx.Client(trust_env=False, timeout=60) as client:
        found = client.get(f"http://{address}/{path}")
    assert found.json() == json.loads(History(told.folder / "lake").route("topic-100", "2023-11-14T23:14:50Z").body)


@pytest.mark.parametrize("question", ASKED)
def test_a_question(
    told: Told, address: str, question: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.history.no_pandas.keep_pandas_out", lambda: None)  # meant for a process of its own

    def answer(*where: str) -> list[Any]:
        assert usage.run(app, [*shlex.split(ASKED[question]), "--json", *where]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert answer("--http", address) == answer("--data-dir", str(told.folder)) != []


def report(address: str, name: str, **asked: Any) -> list[dict[str, Any]]:
    """The rows of one request, times as times."""
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
        found = client.get(f"/v1/reports/{name}", params={**asked, "limit": 5000}).json()
    assert "nextCursor" not in found
    return [
        {
            column: datetime.fromisoformat(value) if column in TIME_COLUMNS and value is not None else value
            for column, value in row.items()
        }
        for row in found["rows"]
    ]


def test_unwritable(told: Told, address: str) -> None:
    found = [row for row in report(address, "unavailable") if row["kind"] == "not writable"]
    wanted = told.ask("Which topics had no queue to write to, and for how long?")
    assert sorted((row["topic"], row["validFrom"], row["validTo"]) for row in found) == sorted(
        row[:3] for row in wanted
    )
    for row in found:
        assert row["validTo"] is None or row["validTo"] - row["validFrom"] == timedelta(seconds=row["seconds"])


def test_flapping(told: Told, address: str) -> None:
    """A broker is as many addresses as it has; here it has one. Who has gone for good has gone once more than come back."""
    found = {row["brokerName"]: row["timesBack"] for row in report(address, "flapping", times=0)}
    alive = {key[0] for key in told.scan.rows_at("brokerLiveTable", 2**62)}
    gone = {name: found.get(name, 0) + (name not in alive) for name in (*found, "broker-29")}
    wanted = {name: times for name, times, _ in told.ask("Which brokers come and go?")}
    assert {name: times for name, times in gone.items() if times > 2} == wanted


def test_alive(told: Told, address: str) -> None:
    found = [(row["validFrom"], row["validTo"], row["brokers"]) for row in report(address, "alive")]
    assert found == told.ask("How many brokers were alive, over time?")


def test_uneven(told: Told, address: str) -> None:
    found = [(row["topic"], row["brokers"]) for row in report(address, "uneven")]
    assert found == told.ask("Do all brokers of a topic have the same queues?")


def test_when_topics_appeared(told: Told, address: str) -> None:
    found = [(row["hour"], row["firstSeen"]) for row in report(address, "churn") if row["firstSeen"]]
    assert found == told.ask("How many topics appeared, hour by hour?")


def test_a_timeline_shows_an_expiry_when_it_was_noticed(told: Told, address: str) -> None:
    """And a report from the deadline on: never later, and where they differ by an expiry alone."""
    rows = [row for row in report(address, "unavailable") if row["begunBy"] == "BROKER_EXPIRED"]
    later = 0
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
        for row in rows[:20]:
            intervals = client.get(f"/v1/topics/{row['topic']}/timeline?limit=1000").json()["intervals"]
            begins = [
                datetime.fromisoformat(each["from"])
                for each in intervals
                if not each["writable"] and each["begunBy"]["command"] == "BROKER_EXPIRED"
            ]
            shown = min(begin for begin in begins if begin >= row["validFrom"])
            later += shown > row["validFrom"]
            assert row["validTo"] is None or shown < row["validTo"]
    assert later

# SPDX-License-Identifier: Apache-2.0
"""A gateway over the two hours answers the questions of docs/how-to/analyze/queries.md as the tables alone do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from cli import usage
from cli.main import app
from dev.support.local import LocalGateway
from dev.support.memory_log import MemoryLog
from lake.history.history import History
from tests.lake.history.reports.conftest import COMMANDS, Told

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("reports")]

ASKED = {question: words for question, words in COMMANDS.items() if not words.startswith("history verify")}


@pytest.fixture(scope="module")
def address(told: Told) -> Iterator[str]:
    """host:port of a gateway. Its log has the events of the lake."""
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
    monkeypatch.setattr("runtime.no_pandas.keep_pandas_out", lambda: None)  # meant for a process of its own

    def answer(*where: str) -> list[Any]:
        assert usage.run(app, [*shlex.split(ASKED[question]), "--json", *where]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert answer("--http", address) == answer("--data-dir", str(told.folder)) != []


def test_a_timeline_shows_an_expiry_when_it_was_noticed(told: Told, address: str) -> None:
    """And a report from the deadline on: never later, and where they differ by an expiry alone."""
    later = 0
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
        rows = client.get("/v1/reports/unavailable?limit=5000").json()["rows"]
        for row in [row for row in rows if row["begunBy"] == "BROKER_EXPIRED"][:20]:
            intervals = client.get(f"/v1/topics/{row['topic']}/timeline?limit=1000").json()["intervals"]
            begins = [
                datetime.fromisoformat(each["from"])
                for each in intervals
                if not each["writable"] and each["begunBy"]["command"] == "BROKER_EXPIRED"
            ]
            shown = min(begin for begin in begins if begin >= datetime.fromisoformat(row["validFrom"]))
            later += shown > datetime.fromisoformat(row["validFrom"])
            assert row["validTo"] is None or shown < datetime.fromisoformat(row["validTo"])
    assert later

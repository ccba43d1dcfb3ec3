# SPDX-License-Identifier: Apache-2.0
"""A gateway over the two hours answers the questions of docs/history.md as the tables alone do."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from api.view.history import History
from cli import usage
from cli.main import app
from pipelines.log.memory import MemoryLog
from tests.pipelines.reports.conftest import COMMANDS, Told
from tests.support.local import LocalGateway

pytestmark = pytest.mark.deep  # the lake is built once more where another process has test_questions

ASKED = {question: words for question, words in COMMANDS.items() if not words.startswith("history report")}


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
    monkeypatch.setattr("api.view.no_pandas.keep_pandas_out", lambda: None)  # meant for a process of its own

    def answer(*where: str) -> list[Any]:
        assert usage.run(app, [*shlex.split(ASKED[question]), "--json", *where]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert answer("--http", address) == answer("--data-dir", str(told.folder)) != []


def told_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def changes(address: str, table: str) -> list[dict[str, Any]]:
    """Every change of a table, oldest first, a page at a time."""
    found: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"tableName": table, "limit": 1000}
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
        while True:
            page = client.get("/v1/changes", params=asked).json()
            found += page["changes"]
            if "nextCursor" not in page:
                return found[::-1]
            asked["cursor"] = page["nextCursor"]


def test_when_topics_appeared(told: Told, address: str) -> None:
    first: dict[str, datetime] = {}
    for row in changes(address, "topicQueueTable"):
        first.setdefault(row["topic"], told_time(row["eventTime"]))
    hours = Counter(time.replace(minute=0, second=0, microsecond=0) for time in first.values())
    assert sorted(hours.items()) == told.ask("How many topics appeared, hour by hour?")

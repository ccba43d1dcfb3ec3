# SPDX-License-Identifier: Apache-2.0
"""The twelve questions of docs/how-to/analyze/queries.md over two hours of 30 brokers: each answered as a plain scan of the events does."""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cli import usage
from cli.main import app
from dev.support.history_page import QUERIES
from lake.history.history import History
from tests.lake.history.reports.conftest import COMMANDS, SQL, Told

pytestmark = pytest.mark.xdist_group("reports")

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
THEN = datetime(2023, 11, 14, 23, 14, 50, tzinfo=UTC)
LATER = THEN + timedelta(minutes=30)


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def command(told: Told, question: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> list[Any]:
    """What the page's command says, as JSON, on the tables alone."""
    patch.setattr("runtime.no_pandas.keep_pandas_out", lambda: None)  # meant for a process of its own
    assert usage.run(app, [*shlex.split(COMMANDS[question]), "--json", "--data-dir", str(told.folder)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_there_are_twelve_and_each_is_short() -> None:
    assert len(SQL) == 12
    for query in SQL.values():
        assert len(query.strip().splitlines()) <= 6
    assert len(COMMANDS) == 12


@pytest.mark.parametrize("question", [question for question, queries in QUERIES.items() if len(queries) > 1])
def test_with_macros_and_without(told: Told, question: str) -> None:
    with_macros, without = QUERIES[question]
    assert len(without.splitlines()) <= 6
    found = told.duck.connection.execute(without).fetchall()
    assert Counter(map(str, found)) == Counter(map(str, told.duck.connection.execute(with_macros).fetchall()))


def test_route(told: Told) -> None:
    rows = told.scan.rows_at("topicQueueTable", ms(THEN))
    wanted = sorted(
        (name, row["writeQueueNums"], row["perm"]) for (name, topic), row in rows.items() if topic == "topic-100"
    )
    assert told.ask("What was the route of a topic at a time?") == wanted
    assert len(wanted) == 3
    route = json.loads(History(told.folder / "lake").route("topic-100", "2023-11-14T23:14:50Z").body)
    assert [(row["brokerName"], row["writeQueueNums"], row["perm"]) for row in route["queueDatas"]] == wanted


def test_changes(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    question = "What changed between two times?"
    rows = [row for row in told.ask(question) if row[2] is not None]
    wanted = Counter(
        (time_of(change.time_ms), change.command, change.table)
        for change in told.scan.changes
        if ms(THEN) < change.time_ms <= ms(LATER)
    )
    assert Counter((time, cause, table) for time, cause, table, _ in rows) == wanted
    assert wanted
    found = [each for each in command(told, question, capsys, monkeypatch) if "tableName" in each]
    assert len(found) == len(rows)


def test_who_deleted(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    question = "Who deleted a topic?"
    scan = [(time, event) for time, name, event in told.scan.commands if name == "DELETE_TOPIC_IN_NAMESRV"]
    wanted = [
        (time_of(time), "2001:db8::7", None) for time, event in scan if getattr(event, "topic", "") == "topic-224"
    ]
    assert told.ask(question) == wanted
    assert len(wanted) == 1
    found = command(told, question, capsys, monkeypatch)
    assert {each["actor"]["peer"] for each in found} == {"[2001:db8::7]:40002"}


def test_unwritable(told: Told) -> None:
    wanted: list[tuple[Any, ...]] = []
    for topic, steps in told.scan.write_queues().items():
        kinds = [(time, min(1, queues)) for time, queues in steps]
        changed = [kinds[0], *(later for earlier, later in pairwise(kinds) if earlier[1] != later[1])]
        for begin, end in pairwise([*changed, None]):
            assert begin is not None
            if begin[1] == 0:
                till = None if end is None else time_of(end[0])
                since = time_of(begin[0])
                wanted.append((topic, since, till, None if till is None else till - since))
    wanted.sort(key=lambda row: (row[1], row[0]))
    assert told.ask("Which topics had no queue to write to, and for how long?") == wanted
    assert "topic-100" in {row[0] for row in wanted}


def test_flapping(told: Told) -> None:
    gone = defaultdict[str, list[int]](list)
    for change in told.scan.changes:
        if change.table == "brokerLiveTable" and change.after is None:
            gone[change.key[0]].append(change.time_ms)
    wanted = [(name, len(times), time_of(max(times))) for name, times in gone.items() if len(times) > 2]
    found = told.ask("Which brokers come and go?")
    assert found == sorted(wanted, key=lambda row: (-row[1], row[0]))
    assert found[0][0] == "broker-29"


def test_queues_over_time(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    question = "How many queues did a topic have, over time?"
    found = told.ask(question)
    assert [(begin, queues) for begin, _, _, queues in found] == [
        (time_of(time), queues) for time, queues in told.scan.write_queues()["topic-100"] if queues >= 0
    ]
    for earlier, later in pairwise(found):
        assert earlier[1] <= later[0]
    intervals = command(told, question, capsys, monkeypatch)[::-1]
    for time in (THEN, LATER, START + timedelta(minutes=50, seconds=30)):
        (state,) = [
            each for each in intervals if each["from"] <= iso(time) and (each["to"] is None or iso(time) < each["to"])
        ]
        (row,) = [row for row in found if row[0] <= time and (row[1] is None or time < row[1])]
        assert state["writeQueueNums"] == row[3]


def iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_cluster(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    question = "What is different in a cluster between then and now?"
    west = {f"broker-{number:02}" for number in range(20, 30)}
    wanted = set()
    for table in ("topicQueueTable", "brokerAddrTable", "clusterAddrTable"):
        then, now = (told.scan.rows_at(table, time) for time in (ms(THEN), 2**62))
        wanted |= {
            (table, key) for key in then.keys() | now.keys() if then.get(key) != now.get(key) and west & set(key)
        }
    rows = told.ask(question)
    found = {(table, tuple(json.loads(key).values())) for table, key, _, _ in rows if table != "brokerLiveTable"}
    assert found == wanted
    assert found
    (page,) = command(told, question, capsys, monkeypatch)
    assert {(each["tableName"], tuple(each["key"].values())) for each in page["differences"]} == {
        (table, tuple(json.loads(key).values())) for table, key, _, _ in rows
    }


def test_one_address(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    question = "What did one address do?"
    wanted = [
        (time_of(time), name, getattr(event, "topic", None))
        for time, name, event in told.scan.commands
        if event.actor.peer == "[2001:db8::7]:40002"
    ]
    assert [row[:3] for row in told.ask(question)] == wanted
    found = [each for each in command(told, question, capsys, monkeypatch) if "tableName" not in each]
    assert [each["topic"] for each in found] == [topic for _, _, topic in reversed(wanted)]


def test_topics_per_hour(told: Told) -> None:
    first: dict[str, int] = {}
    for change in told.scan.changes:
        if change.table == "topicQueueTable":
            first[change.key[1]] = min(change.time_ms, first.get(change.key[1], change.time_ms))
    hours = Counter(time_of(time).replace(minute=0, second=0, microsecond=0) for time in first.values())
    assert told.ask("How many topics appeared, hour by hour?") == sorted(hours.items())


def test_same_route(told: Told) -> None:
    of_topic = defaultdict[str, list[dict[str, Any]]](list)
    for (_, topic), row in told.scan.rows_at("topicQueueTable", 2**62).items():
        of_topic[topic].append(row)
    wanted = [
        (topic, len(rows))
        for topic, rows in of_topic.items()
        if len({(row["readQueueNums"], row["writeQueueNums"], row["perm"]) for row in rows}) > 1
    ]
    assert told.ask("Do all brokers of a topic have the same queues?") == sorted(wanted)
    assert wanted


def test_proof(told: Told) -> None:
    assert told.ask("Has anybody changed the history?") == []
    proved = told.duck.connection.execute("SELECT count(*) FROM chainProof WHERE holds").fetchone()
    assert told.duck.commit is not None
    assert proved == (told.duck.commit.epoch,)


def test_alive(told: Told) -> None:
    wanted: list[tuple[datetime, int]] = []
    alive = 0
    for time, rows in told.scan.over_time("brokerLiveTable"):
        if len(rows) != alive:
            alive = len(rows)
            wanted.append((time_of(time), alive))
    found = told.ask("How many brokers were alive, over time?")
    assert [(begin, brokers) for begin, _, brokers in found] == wanted
    assert [row[1] for row in found] == [*(row[0] for row in found[1:]), None]


def report(told: Told, name: str, *args: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What `./routelake history report` says, as JSON."""
    patch.setattr("runtime.no_pandas.keep_pandas_out", lambda: None)
    assert usage.run(app, ["history", "report", name, *args, "--json", "--data-dir", str(told.folder)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_report_unavailable(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    window = ("--from", iso(THEN), "--to", iso(LATER))
    rows = report(told, "unavailable", *window, patch=monkeypatch, capsys=capsys)
    wanted = Counter[Any]()
    for topic, kinds in told.scan.write_kinds().items():
        for begin, end in pairwise([*kinds, (2**62, "")]):
            first, last = max(begin[0], ms(THEN)), min(end[0], ms(LATER))
            if begin[1] in ("not writable", "no broker") and begin[0] <= ms(LATER) and end[0] > ms(THEN):
                wanted[topic, begin[1], (last - first) / 1000, end[0] > ms(LATER)] += 1
    assert Counter((row["topic"], row["kind"], row["seconds"], row["validTo"] is None) for row in rows) == wanted
    assert {kind for _, kind, _, _ in wanted} == {"not writable", "no broker"}


def test_report_churn(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = report(told, "churn", patch=monkeypatch, capsys=capsys)
    wanted = defaultdict[str, Counter[str]](Counter)
    there = ("writable", "not writable")
    for kinds in told.scan.write_kinds().values():
        for before, (time, kind) in pairwise([(0, "deleted"), *kinds]):
            hour = time_of(time).replace(minute=0, second=0, microsecond=0).isoformat().replace("+00:00", "Z")
            if kind not in there:
                wanted[hour]["deleted" if kind == "deleted" else "lost"] += 1
            elif before[1] not in there:
                wanted[hour]["made" if before[1] == "deleted" else "returned"] += 1
    names = ("made", "deleted", "lost", "returned")
    assert [(row["hour"], *(row[name] for name in names)) for row in rows] == [
        (hour, *(counts[name] for name in names)) for hour, counts in sorted(wanted.items())
    ]
    assert all(sum(row[name] for row in rows) for name in names)


def test_report_flapping_and_expiry(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    comings = defaultdict[tuple[Any, ...], list[Any]](list)
    for change in told.scan.changes:
        if change.table == "brokerLiveTable" and (change.before is None) != (change.after is None):
            comings[change.key].append((change.time_ms, change.command, change.after is not None))
    away = {
        key: [(back[0] - went[0], went[1]) for went, back in pairwise(sorted(steps)) if back[2]]
        for key, steps in comings.items()
    }
    rows = report(told, "flapping", "--times", "1", patch=monkeypatch, capsys=capsys)
    assert {(row["brokerName"], row["clusterName"], row["brokerAddr"]): row["awaySeconds"] for row in rows} == {
        key: sum(times for times, _ in each) / 1000 for key, each in away.items() if len(each) > 1
    }
    assert rows
    rows = report(told, "expiry", patch=monkeypatch, capsys=capsys)
    expired = [step for steps in comings.values() for step in steps if step[1] == "BROKER_EXPIRED"]
    assert [row["went"] for row in rows] == [
        time_of(time).isoformat().replace("+00:00", "Z") for time, _, _ in sorted(expired)
    ]
    assert all(row["topicsLost"] for row in rows)


def test_report_peers(told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = report(told, "peers", patch=monkeypatch, capsys=capsys)
    wanted = Counter[str]()
    for change in told.scan.changes:
        if change.actor is not None and change.actor.peer is not None:
            wanted[change.actor.peer.rpartition(":")[0].strip("[]")] += 1
    assert {row["address"]: row["changedRows"] for row in rows if row["changedRows"]} == wanted
    (script,) = [row for row in rows if row["address"] == "2001:db8::7"]
    peers = [event.actor.peer or "" for _, _, event in told.scan.commands]
    assert script["commands"] == sum(peer.startswith("[2001") for peer in peers)

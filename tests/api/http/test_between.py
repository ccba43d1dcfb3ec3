# SPDX-License-Identifier: Apache-2.0
"""All changes, and what is different between two moments, over HTTP."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any
from urllib.parse import quote, urljoin

import msgspec
import pytest

from api.http.answers import BlameAnswer, BrokerTimelineAnswer, Change, ChangesAnswer, DiffAnswer, TopicTimelineAnswer
from dev.support.http_api import HttpApi, broker, parsed, problem

CSV = {"accept": "text/csv"}
NDJSON = {"accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two broker groups; one wiped, and given back; a topic deleted; a KV entry."""
    api = HttpApi(tmp_path_factory.mktemp("between"))
    try:
        api.settled()  # the start is an epoch of its own, however busy the machine
        api.register(broker())
        api.register(broker("broker-b", host=2, cluster="c2", topics=("orders", "refunds")), peer=("::1", 4711))
        api.settled()
        api.post("/v1/brokers/broker-a/wipe-write-perm")
        api.settled()
        api.post("/v1/brokers/broker-a/add-write-perm")
        api.put("/v1/kv/n/k", {"value": '=1+1,"2"\nü'})
        api.settled()
        api.delete("/v1/topics/orders?cluster=c2")
        api.settled()
        yield api
    finally:
        api.close()


def changes(api: HttpApi, query: str = "") -> list[Change]:
    answer = api.get(f"/v1/changes?limit=1000&{query}")
    assert answer.status_code == 200, answer.text
    found = parsed(answer, ChangesAnswer)
    assert found.next_cursor is None
    return found.changes


def commands(api: HttpApi, query: str = "") -> list[str]:
    """But for the start of the gateway."""
    return list(dict.fromkeys(change.command for change in changes(api, query) if change.command != "RESUME"))


def epoch_of(api: HttpApi, command: str) -> int:
    return next(change.epoch for change in changes(api) if change.command == command)


def test_everything_newest_first(past: HttpApi) -> None:
    assert commands(past) == [
        *("DELETE_TOPIC_IN_NAMESRV", "PUT_KV_CONFIG", "ADD_WRITE_PERM_OF_BROKER", "WIPE_WRITE_PERM_OF_BROKER"),
        "REGISTER_BROKER",
    ]
    found = changes(past)
    assert [change.epoch for change in found] == sorted((change.epoch for change in found), reverse=True)


def test_filters(past: HttpApi) -> None:
    assert commands(past, "brokerName=broker-b") == ["DELETE_TOPIC_IN_NAMESRV", "REGISTER_BROKER"]
    assert commands(past, "cluster=c2&topic=orders") == ["DELETE_TOPIC_IN_NAMESRV", "REGISTER_BROKER"]
    assert commands(past, "tableName=kvConfigTable&user=nobody") == []
    assert commands(past, "command=PUT_KV_CONFIG&outcome=applied&peer=127.0.0.1") == ["PUT_KV_CONFIG"]
    assert commands(past, "outcome=rejected") == []
    for peer in ("::1", "[::1]", "[::1]:4711"):
        assert {change.broker_name for change in changes(past, f"peer={peer}")} == {"broker-b"}
    assert commands(past, "peer=[::1]:471") == commands(past, "peer=::") == []
    for topic in ("'", "' OR true --", "\\", "%00", "ü", "%ED%A0%80"):
        assert changes(past, f"topic={topic}") == []


def test_between_two_moments(past: HttpApi) -> None:
    wiped, added = epoch_of(past, "WIPE_WRITE_PERM_OF_BROKER"), epoch_of(past, "ADD_WRITE_PERM_OF_BROKER")
    assert commands(past, f"from={wiped - 1}&to={wiped}") == ["WIPE_WRITE_PERM_OF_BROKER"]
    assert "WIPE_WRITE_PERM_OF_BROKER" not in commands(past, f"from={wiped}")
    assert commands(past, f"to={wiped}") == ["WIPE_WRITE_PERM_OF_BROKER", "REGISTER_BROKER"]
    assert commands(past, "from=now") == commands(past, f"from={added}&to={added}") == []
    time = next(change.event_time for change in changes(past) if change.epoch == wiped)
    assert commands(past, f"to={time}") == ["WIPE_WRITE_PERM_OF_BROKER", "REGISTER_BROKER"]
    assert commands(past, f"to={quote(time.replace('Z', '+00:00'))}&from={wiped - 1}") == ["WIPE_WRITE_PERM_OF_BROKER"]


def test_pages_and_formats(past: HttpApi) -> None:
    whole = [msgspec.to_builtins(change) for change in changes(past)]
    for accept, read in (
        ({}, lambda text: json.loads(text)["changes"]),
        (NDJSON, lambda text: [json.loads(line) for line in text.splitlines()]),
    ):
        found, url = list[dict[str, Any]](), "/v1/changes?limit=3&topic=orders"
        while True:
            answer = past.get(url, headers=accept)
            assert answer.headers["vary"] == "accept"
            page = read(answer.text)
            assert len(page) <= 3
            found += page
            if "next" not in answer.links:
                break
            url = urljoin(url, answer.links["next"]["url"])
        wanted = [change for change in whole if change.get("topic") == "orders"]
        assert [{key: value for key, value in row.items() if value is not None} for row in found] == [
            {**change, "actor": {**change["actor"]}} for change in wanted
        ]


def test_csv(past: HttpApi) -> None:
    answer = past.get("/v1/changes?limit=1000", headers=CSV)
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["command"] for row in rows] == [change.command for change in changes(past)]
    put = next(row for row in rows if row["tableName"] == "kvConfigTable")
    assert json.loads(put["after"]) == {"value": '=1+1,"2"\nü'}
    assert (put["before"], put["peer"], put["via"]) == ("", "127.0.0.1:50000", "http")
    assert past.get("/v1/changes?topic=nothing", headers=CSV).text.count("\n") == 1


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("text/*", "text/csv"),
        ("text/csv;q=0.1, application/json;q=0.5", "application/json"),
        ("application/json;q=0, */*;q=0.1", "application/x-ndjson"),
        ("text/csv;q=x", "application/json"),
        ("TEXT/CSV; q=1", "text/csv"),
    ],
)
def test_accept(past: HttpApi, accept: str, media: str) -> None:
    assert past.get("/v1/changes?limit=1", headers={"accept": accept}).headers["content-type"].startswith(media)


def difference(api: HttpApi, query: str) -> DiffAnswer:
    answer = api.get(f"/v1/diff?{query}")
    assert answer.status_code == 200, answer.text
    return parsed(answer, DiffAnswer)


def test_what_is_different(past: HttpApi) -> None:
    wiped, deleted = epoch_of(past, "WIPE_WRITE_PERM_OF_BROKER"), epoch_of(past, "DELETE_TOPIC_IN_NAMESRV")
    found = difference(past, f"from={wiped - 1}&to={wiped}")
    assert (found.from_.epoch, found.to.epoch) == (wiped - 1, wiped)
    assert [(each.op, each.key["topic"], each.before, each.after) for each in found.differences if each.before] == [
        ("u", topic, queues(6), queues(4)) for topic in ("orders", "payments")
    ]
    later = difference(past, f"from={wiped - 1}&to={deleted}")  # broker-a's came back to what they were
    assert [(each.table_name, each.op) for each in later.differences] == [
        ("kvConfigTable", "i"),
        ("topicQueueTable", "d"),
    ]
    assert later.differences[1].after is None
    assert difference(past, f"from={wiped - 1}&to={deleted}&brokerName=broker-a").differences == []
    assert len(difference(past, f"from={wiped - 1}&to={deleted}&command=PUT_KV_CONFIG").differences) == 1
    page = difference(past, f"from={wiped - 1}&limit=1")
    rest = difference(past, f"from={wiped - 1}&limit=1&cursor={page.next_cursor}")
    assert [*page.differences, *rest.differences] == later.differences
    assert rest.next_cursor is None
    now = past.get(f"/v1/diff?from={deleted}&to=now")
    assert now.json()["differences"] == []
    again = past.get(f"/v1/diff?from={deleted}&to=now", headers={"if-none-match": now.headers["etag"]})
    assert again.status_code == 304


def queues(perm: int) -> dict[str, int]:
    return {"readQueueNums": 8, "writeQueueNums": 8, "perm": perm, "topicSysFlag": 0}


@pytest.mark.parametrize("path", ["changes", "diff"])
def test_what_is_refused(past: HttpApi, path: str) -> None:
    url = f"/v1/{path}?"
    given = "from=1&" if path == "diff" else ""
    for name in ("from", "to"):
        ask = f"{url}{given if name == 'to' else ''}{name}="
        problem(past.get(f"{ask}2999-01-01T00:00:00Z"), 404, "future-time")
        problem(past.get(f"{ask}99999"), 404, "future-epoch")
        problem(past.get(f"{ask}1999-01-01T00:00:00Z"), 404, "before-history")
        for bad in ("", "yesterday", "2026-01-01T00:00:00", "1767225601000", "-1"):
            assert problem(past.get(f"{ask}{bad}"), 400, "bad-parameter")["errors"][0]["field"] == name
    found = problem(past.get(f"{url}from=3&to=2"), 400, "bad-parameter")
    assert "from must not be after to" in found["detail"]
    for bad in ("tableName=x", "command=DELETE", "outcome=failed", "limit=0", "limit=1001", "cursor=x", "x=1"):
        found = problem(past.get(f"{url}{given}{bad}"), 400, "bad-parameter")
        assert found["errors"][0]["field"] == bad.partition("=")[0]
    page = past.get(f"{url}from=1&limit=1").json()
    found = problem(past.get(f"{url}from=2&cursor={page['nextCursor']}"), 400, "bad-parameter")
    assert "other parameters" in found["detail"]


@pytest.mark.parametrize("path", ["/v1/changes?limit=1", "/v1/diff?from=1&limit=1"])
@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 2**64])
def test_a_made_up_number_in_a_cursor_is_refused(past: HttpApi, path: str, number: int) -> None:
    cursor = past.get(path).json()["nextCursor"]
    text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    digest, (mark, place) = text[:8], json.loads(text[8:])
    for index in (index for index, value in enumerate(place) if isinstance(value, int)):
        made_up = json.dumps([mark, [*place[:index], number, *place[index + 1 :]]]).encode()
        found = past.get(f"{path}&cursor={base64.urlsafe_b64encode(digest + made_up).decode()}")
        assert problem(found, 400, "bad-parameter")["errors"][0]["field"] == "cursor"


def test_a_comparison_needs_its_beginning(past: HttpApi) -> None:
    assert problem(past.get("/v1/diff"), 400, "bad-parameter")["errors"] == [
        {"field": "from", "message": "is required"}
    ]


def test_nothing_yet(unfolded: HttpApi) -> None:
    problem(unfolded.get("/v1/changes"), 503, "system-busy")
    problem(unfolded.get("/v1/diff?from=1"), 503, "system-busy")


def test_timelines(past: HttpApi) -> None:
    answer = past.get("/v1/topics/payments/timeline")
    intervals = parsed(answer, TopicTimelineAnswer).intervals
    assert [(each.writable, each.write_queue_nums) for each in intervals] == [(True, 8), (False, 0), (True, 8)]
    wiped = epoch_of(past, "WIPE_WRITE_PERM_OF_BROKER")
    assert (intervals[1].from_epoch, intervals[1].begun_by.command) == (wiped, "WIPE_WRITE_PERM_OF_BROKER")
    assert intervals[1].ended_by == intervals[0].begun_by
    page = past.get("/v1/topics/payments/timeline?limit=2").json()
    rest = past.get(f"/v1/topics/payments/timeline?limit=2&cursor={page['nextCursor']}").json()
    assert page["intervals"] + rest["intervals"] == answer.json()["intervals"]
    assert "nextCursor" not in rest
    (group,) = parsed(past.get("/v1/brokers/broker-b/timeline"), BrokerTimelineAnswer).intervals
    assert (group.alive, group.to, group.broker_addrs) == (True, None, {"0": "10.0.0.2:10911"})
    problem(past.get("/v1/topics/nothing/timeline"), 404, "topic-not-exist")
    problem(past.get("/v1/brokers/nothing/timeline"), 404, "not-found")
    for bad in ("limit=0", "cursor=x", "as_of=1", "from=2&to=1", "from=yesterday", "to=2026-01-01T00:00:00"):
        problem(past.get(f"/v1/topics/payments/timeline?{bad}"), 400, "bad-parameter")
    some = past.get(f"/v1/topics/payments/timeline?from={wiped}&to={wiped}").json()["intervals"]
    assert [(each["fromEpoch"], each["to"], each["endedBy"]) for each in some] == [(wiped, None, None)]
    problem(past.get("/v1/topics/payments/timeline?from=2100-01-01T00:00:00Z"), 404, "future-time")
    problem(past.get("/v1/brokers/broker-b/timeline?to=999999"), 404, "future-epoch")


def test_blame(past: HttpApi) -> None:
    found = parsed(past.get("/v1/topics/payments/blame"), BlameAnswer)
    set_by = {each.field: (each.set_by.command, each.value) for each in found.fields}
    assert set_by["perm"] == ("ADD_WRITE_PERM_OF_BROKER", 6)
    assert set_by["writeQueueNums"] == ("REGISTER_BROKER", 8)
    assert set_by["brokerAddrs.0"] == ("REGISTER_BROKER", "10.0.0.1:10911")
    wiped = epoch_of(past, "WIPE_WRITE_PERM_OF_BROKER")
    then = parsed(past.get(f"/v1/topics/payments/blame?as_of={wiped}"), BlameAnswer)
    assert then.as_of.epoch == wiped
    assert {each.field: each.epoch for each in then.fields}["perm"] == wiped
    problem(past.get("/v1/topics/nothing/blame"), 404, "topic-not-exist")
    problem(past.get("/v1/topics/payments/blame?as_of=1"), 404, "topic-not-exist")
    problem(past.get("/v1/topics/payments/blame?as_of=99999"), 404, "future-epoch")
    problem(past.get("/v1/topics/payments/blame?as_of=1999-01-01T00:00:00Z"), 404, "before-history")


def test_missing_names_are_empty_with_missing_empty(past: HttpApi) -> None:
    """Only the name may be missing: a point in time that is not there stays a problem."""
    empty: dict[str, Any] = {"brokerDatas": [], "filterServerTable": {}, "queueDatas": []}
    for moment in ("", "&as_of=1"):
        answer = past.get(f"/v1/topics/nothing/route?missing=empty{moment}")
        assert (answer.status_code, answer.json()) == (200, empty)
        assert int(answer.headers["x-routelake-epoch"]) > 0
        tag = {"if-none-match": answer.headers["etag"]}
        assert past.get(f"/v1/topics/nothing/route?missing=empty{moment}", headers=tag).status_code == 304
        blame = parsed(past.get(f"/v1/topics/nothing/blame?missing=empty{moment}"), BlameAnswer)
        assert blame.fields == []
        assert past.get(f"/v1/kv/nothing?missing=empty{moment}").json() == {"namespace": "nothing", "table": {}}
    for path in ("/v1/topics/nothing/timeline", "/v1/brokers/nothing/timeline"):
        assert past.get(f"{path}?missing=empty").json() == {"intervals": []}
    for path in ("topics/nothing/route", "topics/nothing/timeline", "topics/nothing/blame", "kv/nothing"):
        problem(past.get(f"/v1/{path}?missing=nothing"), 400, "bad-parameter")
        assert past.get(f"/v1/{path}?missing=problem").status_code == 404
    for path in ("topics/nothing/route", "topics/nothing/blame", "kv/nothing"):
        problem(past.get(f"/v1/{path}?missing=empty&as_of=99999"), 404, "future-epoch")

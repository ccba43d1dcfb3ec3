# SPDX-License-Identifier: Apache-2.0
"""The past over HTTP: as_of, changes, epochs."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import pytest

from api.http import reads, routes_history, routes_reports
from api.http.answers import ChangesAnswer, EpochsAnswer
from dev.support.http_api import HttpApi, broker, parsed, problem
from schemas.route import TopicRouteData


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Epoch by epoch: registered, wiped, deleted."""
    api = HttpApi(tmp_path_factory.mktemp("past"))
    try:
        api.register(broker())
        api.settled()
        api.post("/v1/brokers/broker-a/wipe-write-perm")
        api.settled()
        api.delete("/v1/topics/orders")
        api.settled()
        yield api
    finally:
        api.close()


def epochs(api: HttpApi, query: str = "") -> EpochsAnswer:
    return parsed(api.get(f"/v1/epochs{query}"), EpochsAnswer)


def epoch_of(api: HttpApi, command: str) -> int:
    page = parsed(api.get("/v1/topics/orders/changes"), ChangesAnswer)
    return next(change.epoch for change in page.changes if change.command == command)


def perm_at(api: HttpApi, as_of: int | str) -> int:
    answer = api.get(f"/v1/topics/orders/route?as_of={quote(str(as_of), safe='')}")
    assert answer.status_code == 200, answer.text
    return parsed(answer, TopicRouteData).queue_datas[0].perm


def test_a_route_as_of_an_epoch(past: HttpApi) -> None:
    registered, wiped, deleted = (
        epoch_of(past, command)
        for command in ("REGISTER_BROKER", "WIPE_WRITE_PERM_OF_BROKER", "DELETE_TOPIC_IN_NAMESRV")
    )
    assert registered < wiped < deleted
    assert (perm_at(past, registered), perm_at(past, wiped)) == (6, 4)
    problem(past.get("/v1/topics/orders/route"), 404, "topic-not-exist")
    answer = past.get(f"/v1/topics/orders/route?as_of={deleted}")
    problem(answer, 404, "topic-not-exist")
    assert answer.headers["x-routelake-epoch"] == str(deleted)
    answer = past.get(f"/v1/topics/orders/route?as_of={registered}")
    assert answer.headers["x-routelake-epoch"] == str(registered)
    assert answer.headers["etag"].startswith(f'"{registered}-')


def test_a_route_as_of_a_time_says_which_epoch_it_used(past: HttpApi) -> None:
    wiped = epoch_of(past, "WIPE_WRITE_PERM_OF_BROKER")
    commit = next(commit for commit in epochs(past).epochs if commit.epoch == wiped)
    for moment in (
        commit.event_time,
        commit.event_time.replace("Z", "+00:00"),
        commit.event_time.replace("Z", "-00:00"),
    ):
        assert perm_at(past, moment) == 4
    answer = past.get(f"/v1/topics/orders/route?as_of={commit.event_time.replace('Z', '+00:00')}")  # + not escaped
    assert answer.headers["x-routelake-epoch"] == str(wiped)
    assert answer.headers["x-routelake-event-time"] == commit.event_time
    assert answer.headers["x-routelake-offset"] == str(commit.log_offset)


def test_points_in_time_that_cannot_be_read(past: HttpApi) -> None:
    route = "/v1/topics/orders/route?as_of="
    newest = epochs(past).epochs[0].epoch
    found = problem(past.get(f"{route}{newest + 100}"), 404, "future-epoch")
    assert found["newestEpoch"] >= newest
    for before in ("0", "1999-01-01T00:00:00Z", "1677-01-01T00:00:00Z", "0001-01-01T00:00:00Z"):
        found = problem(past.get(route + before), 404, "before-history")
        assert (found["firstEpoch"], found["firstTime"][-1]) == (1, "Z")
    for path in (route, "/v1/topics/orders/changes?from="):
        assert problem(past.get(f"{path}2999-01-01T00:00:00Z"), 404, "future-time")["now"].startswith("20")
        problem(past.get(f"{path}0001-01-01T00:00:00Z"), 404, "before-history")
        found = problem(past.get(f"{path}1767225601000"), 400, "bad-parameter")
        assert "=2026-01-01T00:00:01.000Z" in found["detail"]
    for nonsense in ("", "-1", "yesterday", "2026-01-01T00:00:00", "2026-01-01", "2026-13-01T00:00:00Z", "1.5", "NaN"):
        found = problem(past.get(route + nonsense), 400, "bad-parameter")
        assert found["errors"][0]["field"] == "as_of"
    problem(past.get("/v1/topics/a%20b/route?as_of=1"), 400, "bad-parameter")


def test_changes(past: HttpApi) -> None:
    page = parsed(past.get("/v1/topics/orders/changes"), ChangesAnswer)
    by_command = {change.command: change for change in page.changes if change.table_name == "topicQueueTable"}
    wiped = by_command["WIPE_WRITE_PERM_OF_BROKER"]
    assert wiped.before is not None
    assert wiped.after is not None
    assert (wiped.before["perm"], wiped.after["perm"]) == (6, 4)
    assert wiped.actor == {"gateway": "gw", "via": "http", "peer": "127.0.0.1:50000", "user": None}
    assert wiped.key == {"brokerName": "broker-a", "topic": "orders"}
    assert by_command["DELETE_TOPIC_IN_NAMESRV"].after is None
    assert by_command["REGISTER_BROKER"].before is None


def test_pages_of_changes(past: HttpApi) -> None:
    whole = parsed(past.get("/v1/topics/orders/changes"), ChangesAnswer)
    found, url = [], "/v1/topics/orders/changes?limit=1"
    while True:
        page = parsed(past.get(url), ChangesAnswer)
        found += page.changes
        if page.next_cursor is None:
            break
        url = f"/v1/topics/orders/changes?limit=1&cursor={page.next_cursor}"
    assert found == whole.changes
    last = whole.changes[0].epoch
    later = past.get(f"/v1/topics/orders/changes?from={last - 1}").json()["changes"]
    before = past.get(f"/v1/topics/orders/changes?to={last - 1}").json()["changes"]
    assert later
    assert len(later) + len(before) == len(whole.changes)
    lines = past.get("/v1/topics/orders/changes", headers={"accept": "text/csv"}).text.splitlines()
    assert len(lines) == 1 + len(whole.changes)


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "cursor=nonsense", "cursor=%00", "from=yesterday", "to=2026-01-01T00:00:00", "x="),
        *("from=3&to=1", "to=1767225601"),
    ],
)
def test_parameters_of_changes(past: HttpApi, query: str) -> None:
    problem(past.get(f"/v1/topics/orders/changes?{query}"), 400, "bad-parameter")


def test_epochs(past: HttpApi) -> None:
    whole = epochs(past)
    numbers = [commit.epoch for commit in whole.epochs]
    assert numbers == list(range(numbers[0], 0, -1))
    assert "topicQueueTable" in whole.epochs[0].versions
    first = epochs(past, "?limit=2")
    assert first.next_before == first.epochs[-1].epoch
    second = epochs(past, f"?limit=2&before={first.next_before}")
    assert [commit.epoch for commit in second.epochs] == numbers[2:4]
    assert epochs(past, "?before=1").epochs == []
    for query in ("limit=0", "before=-1", "before=x", "before=1767225601"):
        problem(past.get(f"/v1/epochs?{query}"), 400, "bad-parameter")


def test_history_of_a_read_waits_for_its_write(past: HttpApi) -> None:
    receipt = past.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:1"}).json()
    page = past.get(f"/v1/topics/orders/changes?limit=1&wait_for={receipt['offset']}&wait_timeout=30000").json()
    assert page["changes"][0]["offset"] == receipt["offset"]


def test_nothing_committed_yet(unfolded: HttpApi) -> None:
    problem(unfolded.get("/v1/topics/orders/route?as_of=1"), 503, "system-busy")
    problem(unfolded.get("/v1/epochs"), 503, "system-busy")


def test_too_many_reads_at_once(past: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past.app.context.history, "_free", 0)
    monkeypatch.setattr(past.app.context.history, "_max_waiting", 0)
    answer = past.get("/v1/epochs")
    problem(answer, 503, "system-busy")
    assert answer.headers["retry-after"] == "1"
    assert past.get("/v1/clusters").status_code == 200


def test_every_read_of_an_earlier_moment(past: HttpApi) -> None:
    registered, deleted = epoch_of(past, "REGISTER_BROKER"), epoch_of(past, "DELETE_TOPIC_IN_NAMESRV")
    past.put("/v1/kv/n/k", {"value": "v"})
    past.settled()
    before, after = f"?as_of={registered}", f"?as_of={deleted}"
    assert past.get(f"/v1/topics{before}").json()["topicList"] == ["orders", "payments"]
    assert past.get(f"/v1/topics{after}&cluster=c1").json() == {"topicList": ["payments"], "total": 1}
    assert past.get(f"/v1/topics{after}&cluster=c2").json() == {"topicList": [], "total": 0}
    page = past.get(f"/v1/topics{before}&limit=1").json()
    assert past.get(f"/v1/topics{before}&limit=1&cursor={page['nextCursor']}").json()["topicList"] == ["payments"]
    assert past.get(f"/v1/clusters{before}").json()["clusterAddrTable"] == {"c1": ["broker-a"]}
    live = past.get(f"/v1/brokers{before}&cluster=c1").json()["brokers"]
    assert [(row["brokerAddr"], row["brokerId"]) for row in live] == [("10.0.0.1:10911", 0)]
    counts = [past.get(f"/v1/brokers/broker-a{when}").json()["topicCount"] for when in (before, after, "?as_of=now")]
    assert counts == [2, 1, 1]
    problem(past.get(f"/v1/kv/n{after}"), 404, "not-found")
    problem(past.get(f"/v1/kv/n/k{after}"), 404, "not-found")
    assert past.get("/v1/kv/n/k?as_of=now").json()["value"] == "v"
    newest = epochs(past).epochs[0]
    answer = past.get(f"/v1/kv/n/k?as_of={newest.epoch}")
    assert answer.json()["value"] == "v"
    assert answer.headers["x-routelake-event-time"] == newest.event_time
    empty = past.get("/v1/brokers/broker-b?as_of=1")
    assert "then" in problem(empty, 404, "not-found")["detail"]
    assert empty.headers["x-routelake-epoch"] == "1"


@pytest.mark.parametrize(
    "path", ["topics", "topics/orders/route", "clusters", "brokers", "brokers/broker-a", "kv/n", "kv/n/k"]
)
def test_bad_moments_everywhere(past: HttpApi, path: str) -> None:
    path = f"/v1/{path}?as_of="
    problem(past.get(f"{path}2999-01-01T00:00:00Z"), 404, "future-time")
    problem(past.get(f"{path}99999"), 404, "future-epoch")
    problem(past.get(f"{path}1999-01-01T00:00:00Z"), 404, "before-history")
    problem(past.get(f"{path}2026-01-01T00:00:00"), 400, "bad-parameter")
    problem(past.get(f"{path}1&reads=live"), 400, "bad-parameter")
    assert past.get(f"{path}1&reads=committed").status_code in (200, 404)


@pytest.mark.parametrize("accept", ["application/json", "text/csv", "application/x-ndjson"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/changes",
        "/v1/topics/orders/changes",
        "/v1/diff?from=1",
        "/v1/topics/orders/timeline",
        "/v1/brokers/broker-a/timeline",
        "/v1/topics/orders/blame?as_of={registered}",
        "/v1/epochs",
        "/v1/activity",
        "/v1/reports/churn",
        "/v1/lifelines",
    ],
)
def test_answers_are_written_off_the_event_loop(
    past: HttpApi, monkeypatch: pytest.MonkeyPatch, path: str, accept: str
) -> None:
    """A page of 4 MiB, or of 5,000 rows as CSV, takes tenths of a second."""
    path = path.replace("{registered}", str(epoch_of(past, "REGISTER_BROKER")))
    threads: set[int] = set()

    def noting(write: Any) -> Any:
        def noted(*given: Any, **more: Any) -> Any:
            threads.add(threading.get_ident())
            return write(*given, **more)

        return noted

    for module, name in [
        *((reads, name) for name in ("_encode", "csv_text", "json_lines", "body_digest")),
        *((routes_history, f"{name}_members") for name in ("change", "difference", "field", "interval")),
        (routes_reports, "_plain"),
    ]:
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    assert past.get(path, headers={"accept": accept}).status_code == 200

    async def ident() -> int:
        return threading.get_ident()

    assert threads
    assert past.loop.run(ident()) not in threads

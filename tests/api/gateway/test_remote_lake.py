# SPDX-License-Identifier: Apache-2.0
"""A gateway over a lake in an object store: routes, the past, and how often it asks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from api.gateway.follower import Follower
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.local import LocalGateway
from dev.support.loops import until
from dev.support.memory_log import MemoryLog
from dev.support.s3 import FakeS3, fake_s3
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.history import History
from lake.store import open_store
from nameserver.view.snapshot import RouteView
from schemas.errors import NotFoundError, SetupError
from schemas.events import AnyEvent, EventEncoder, routing_key
from schemas.route_commit import CommandOutcome

_encode = EventEncoder().encode


class Remote:
    """A log, a store and a fold."""

    def __init__(self, s3: FakeS3, url: str, folder: Path) -> None:
        self.s3, self.url, self.folder = s3, url, folder
        self.log = MemoryLog()
        self.tell(make.register(table=make.topics("t", "u")))
        self.fold = Fold(self.log, folder / "copy", store=open_store(url), intervals=True)
        self.fold.fold()

    def tell(self, *events: AnyEvent) -> None:
        self.log.append([(routing_key(event), _encode(event)) for event in events])

    def epoch(self, *events: AnyEvent) -> None:
        self.tell(*events)
        assert self.fold.fold() is not None


@pytest.fixture(scope="module")
def s3() -> Iterator[FakeS3]:
    with pytest.MonkeyPatch.context() as patch, fake_s3(patch) as server:
        yield server


@pytest.fixture
def remote(s3: FakeS3, tmp_path: Path, request: pytest.FixtureRequest) -> Remote:
    return Remote(s3, f"s3://lake/{request.node.name}", tmp_path)


class Seen:
    """Follows the newest view."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self.epoch = 0

    def __call__(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        with self._moved:
            self.epoch = view.epoch
            self._moved.notify_all()

    def wait_for(self, epoch: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self.epoch >= epoch, 30), self.epoch


def test_a_gateway_follows_a_remote_lake_with_few_requests(remote: Remote) -> None:
    seen = Seen()
    follower = Follower(remote.url, seen)
    follower.poll()
    assert seen.epoch == 1
    remote.s3.requests()
    assert not follower.poll()
    assert sum(remote.s3.requests().values()) <= 2  # the next entry, and at first whether it is still this lake
    assert not follower.poll()
    assert remote.s3.requests() == {"GET": 1}
    remote.epoch(make.put("n", "k"), make.register("x:1", name="x"))
    remote.s3.requests()
    assert follower.poll()
    asked = remote.s3.requests()
    assert asked.keys() == {"GET"} and asked["GET"] <= 2 + 2 * 7, asked  # the epoch's entry and row, and of each table
    assert seen.epoch == 2
    assert "x" in follower.view.groups
    # A fence, and what it moves, is no epoch.
    other = Fold(remote.log, remote.folder / "other", store=open_store(remote.url), term=2)
    assert not follower.poll()
    remote.tell(make.wipe("x"))
    other.fold()
    assert follower.poll()
    assert seen.epoch == 3
    assert (follower.errors, follower.reloads) == (0, 1), follower.last_error


def test_an_epoch_is_looked_for_often_only_when_one_is_expected(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.gateway.follower.IDLE_POLL_S", 3_600.0)
    seen = Seen()
    follower = Follower(remote.url, seen)
    follower.start()
    seen.wait_for(1)
    _until_it_looks_no_more(follower)
    remote.epoch(make.put("n", "k"))
    assert seen.epoch == 1
    follower.expect(follower.view.log_offset + 1)
    seen.wait_for(2)
    follower.stop()


def _until_it_looks_no_more(follower: Follower) -> None:
    pace = follower._pace
    assert pace is not None
    until(lambda: not pace.is_due(follower.view.log_offset, time.monotonic()))


def test_an_announced_epoch_is_looked_for_at_once(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.gateway.follower.IDLE_POLL_S", 3_600.0)
    monkeypatch.setattr("api.gateway.follower.HEARING_POLL_S", 3_600.0)
    seen = Seen()
    follower = Follower(remote.url, seen)
    follower.start()
    seen.wait_for(1)
    remote.epoch(make.put("n", "k"))
    follower.hears(True)  # what was published before it began to listen
    seen.wait_for(2)
    remote.fold.publisher.on_published = follower.announced
    _until_it_looks_no_more(follower)
    remote.epoch(make.put("n", "l"))
    seen.wait_for(3)
    follower.stop()
    assert follower.errors == 0


def test_an_announcement_moves_nothing_that_the_store_does_not_have(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.gateway.follower.HEARING_POLL_S", 3_600.0)
    seen = Seen()
    follower = Follower(remote.url, seen)
    follower.hears(True)
    follower.start()
    seen.wait_for(1)
    _until_it_looks_no_more(follower)
    remote.s3.requests()
    version = follower._tail.version
    assert version is not None
    follower.announced(version)
    assert follower._pace is not None
    assert not follower._pace.is_due(follower.view.log_offset, time.monotonic())
    follower.announced(version + 1_000)
    until(lambda: sum(remote.s3.requests().values()) > 0)
    _until_it_looks_no_more(follower)
    follower.stop()
    assert (seen.epoch, follower.errors) == (1, 0)


def test_a_gateway_answers_from_it(remote: Remote) -> None:
    remote.epoch(make.put("n", "k"))
    with LocalGateway(remote.log, remote.folder, remoting_port=None, lake_url=remote.url) as gateway:
        committed = gateway.gateway.committed
        assert committed.view.epoch == 2
        assert set(committed.view.topics) == {"t", "u"}
        remote.epoch(make.delete_topic("t"))
        assert gateway.loop.run(committed.wait_for(remote.fold.writer.log_offset, 30.0))
        assert "t" not in committed.view.topics


def test_others_read_it_as_ordinary_tables(remote: Remote) -> None:
    uri = f"{remote.url}/topicQueueTable"
    by_delta_rs = DeltaTable(uri, version=1).to_pyarrow_table()
    found = {(row["brokerName"], row["topic"]) for row in by_delta_rs.to_pylist()}
    assert found == {("b", "t"), ("b", "u")}
    by_polars = polars.read_delta(uri, storage_options=remote.s3.environment)
    assert set(by_polars.select("brokerName", "topic").iter_rows()) == found
    topic_queue = DeltaTable(uri).to_pyarrow_table()
    assert topic_queue.num_rows == 2
    by_duckdb = duckdb.sql("select distinct brokerName from topic_queue")
    assert by_duckdb is not None and by_duckdb.fetchall() == [("b",)]


def test_expired_files_are_deleted_from_the_store(remote: Remote) -> None:
    one = Fold(remote.log, remote.folder / "short", store=open_store(remote.url), term=2, retention_days=0)
    for number in range(3):
        remote.tell(make.put("n", "k", str(number)))
        one.fold()
    for table in one.writer.tables.values():
        table.checkpoint()
    one.publisher.publish_rest()
    there = open_store(remote.url)
    before = {found.path for found in there.listed("kvConfigTable")}
    one.publisher.vacuum("kvConfigTable", 0)
    one.publisher.clean_log("kvConfigTable")
    gone = before - {found.path for found in there.listed("kvConfigTable")}
    assert any(path.endswith(".json") for path in gone)
    assert len([path for path in gone if "part-" in path or "cdc-" in path]) >= 2, gone
    follower = Follower(remote.url, Seen())
    follower.poll()
    assert follower.view.kv["n"] == {"k": "2"}
    two = Fold(remote.log, remote.folder / "next", store=there, term=3)
    assert two.writer.epoch == one.writer.epoch


def test_files_of_any_broker_name_are_deleted_there(remote: Remote) -> None:
    one = Fold(remote.log, remote.folder / "short", store=open_store(remote.url), term=2, retention_days=0)
    names = ("plain", "b c", "ü%/", "b%20=")
    for name in names:
        for event in (make.register(name=name), make.wipe(name)):
            remote.tell(event)
            one.fold()
    there = open_store(remote.url)
    needed = len(one.writer.tables["topicQueueTable"].delta.file_uris())

    def files() -> list[str]:
        paths = [found.path for found in there.listed("topicQueueTable")]
        return [path for path in paths if "/_delta_log/" not in path]

    assert len(files()) > needed + len(names)

    def vacuumed() -> bool:  # a store's times are of whole seconds
        one.publisher.vacuum("topicQueueTable", 0)
        return len(files()) == needed

    until(vacuumed)
    rows = DeltaTable(f"{remote.url}/topicQueueTable").to_pyarrow_table().to_pylist()
    assert {row["brokerName"] for row in rows} == {"b", *names}


def test_a_lake_of_a_newer_format_is_refused(remote: Remote) -> None:
    open_store(remote.url).put("lake.json", b'{"format": 99}')
    with pytest.raises(SetupError, match="format 99"):
        Follower(remote.url, Seen()).poll()


def test_the_past_is_read_there(remote: Remote) -> None:
    remote.epoch(make.delete_topic("t"))
    remote.epoch(make.register("o:1", name="b%20 ü/=", table=make.topics("o1", "o2")))  # in the names of objects, too
    history = History(remote.url)
    assert [commit.epoch for commit in history.epochs()] == [3, 2, 1]
    assert json.loads(history.route("o1", "3").body)["queueDatas"][0]["brokerName"] == "b%20 ü/="
    follower = Follower(remote.url, Seen())
    follower.poll()
    assert "o1" in follower.view.topics
    before = history.route("t", history.resolve("1"))
    assert json.loads(before.body)["queueDatas"][0]["brokerName"] == "b"
    with pytest.raises(NotFoundError):
        history.route("t", history.resolve("2"))
    found = list_changes(history, ChangesAsked(), limit=100).changes
    assert {change.command for change in found} >= {"REGISTER_BROKER", "DELETE_TOPIC_IN_NAMESRV"}

# SPDX-License-Identifier: Apache-2.0
"""History: which commit a time means, routes of the past, errors that name what can be read, and who changed what."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dev.benchmarks.harness.lake_writer import START, LakeWriter
from dev.support.feed import EVERY_FIELD, age_log, complete_rows, group, queue
from dev.support.view_tables import TableChanges, row
from lake.commits import commits_between
from lake.delta.log import active
from lake.history import changelog
from lake.history import history as history_module
from lake.history import state_at as past_rows
from lake.history.as_of import AsOf, parse_as_of, rfc3339
from lake.history.changelog import Change, ChangePage, ChangesAsked, list_changes
from lake.history.filters import Filters
from lake.history.history import History, PastRoute
from lake.history.state_at import PastRows
from lake.view_loader import load_view
from lake.write import maintenance
from nameserver.route_queries import pick_up_topic_route
from schemas.errors import (
    BadRequestError,
    BeforeHistoryError,
    FutureEpochError,
    FutureTimeError,
    NotFoundError,
    SetupError,
    UnavailableError,
    VacuumedError,
)
from schemas.rocketmq_json import encode_topic_route
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_COMMIT_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE, Table


@pytest.fixture
def writer(tmp_path: Path) -> LakeWriter:
    return LakeWriter(tmp_path / "lake")


def at(seconds: float) -> str:
    return rfc3339(START + timedelta(seconds=seconds))


def queues(past: PastRoute) -> int:
    found: int = json.loads(past.body)["queueDatas"][0]["readQueueNums"]
    return found


def commit_row(writer: LakeWriter, nums: int, **options: Any) -> None:
    writer.commit(
        complete_rows({**row(nums, "broker-a", "orders"), "brokerAddrTable": {("broker-a",): group(_0=f"a{nums}")}}),
        **options,
    )


def changes_of(history: History, topic: str, cursor: str | None = None, limit: int = 100, **window: Any) -> ChangePage:
    asked = ChangesAsked(**window, filters=Filters(concerning=topic))
    return list_changes(history, asked, limit=limit, cursor=cursor)


# --- as_of ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", 17),
        ("0", 0),
        ("2026-01-31T03:00:00Z", datetime(2026, 1, 31, 3, tzinfo=UTC)),
        ("2026-01-31t03:00:00.25z", datetime(2026, 1, 31, 3, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-01-31T03:00:00+08:00", datetime(2026, 1, 30, 19, tzinfo=UTC)),
        ("2026-01-31T03:00:00 08:00", datetime(2026, 1, 30, 19, tzinfo=UTC)),  # the + of a URL
        ("2026-01-31 03:00:00-01:30", datetime(2026, 1, 31, 4, 30, tzinfo=UTC)),
    ],
)
def test_as_of(text: str, expected: int | datetime) -> None:
    assert parse_as_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "-1", "1.5", "2026-01-31", "20260131T030000Z", "2026-13-01T00:00:00.000Z", "2026-01-31T25:00:00Z"),
        *("2026-01-31T03:00:00", "9" * 40, "0001-01-01T00:00:00+23:00", "2026-01-31T03:00:00+99:00", "\u0661\u0667"),
    ],
)
def test_what_is_no_as_of(text: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_as_of(text)
    assert refused.value.fields["field"] == "as_of"


def test_a_naive_time_is_refused_with_what_to_write() -> None:
    with pytest.raises(BadRequestError, match=r"no offset from UTC.*03:00:00Z or"):
        parse_as_of("2026-01-31T03:00:00")


# --- commits ---


def test_a_time_means_the_last_epoch_whose_event_time_it_reached(writer: LakeWriter) -> None:
    for number in range(1, 4):
        commit_row(writer, number)
    commit_row(writer, 4, event_time=START + timedelta(seconds=3))  # the same event time as epoch 3
    history = History(writer.path)
    assert history.resolve("2").commit.epoch == 2
    assert history.resolve(at(1)).commit.epoch == 1
    assert history.resolve(at(2.999)).commit.epoch == 2
    assert history.resolve(at(3)).commit.epoch == 4
    assert history.resolve(at(1_000_000)).commit.epoch == 4
    assert (
        history.resolve("2").commit
        == commits_between(writer.path, active(str(writer.path / "routeCommitTable")).files)[1]
    )


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1677-09-21T00:12:43Z", "1969-12-31T23:59:59.999999Z"])
def test_a_time_of_long_ago_is_before_the_history(writer: LakeWriter, time: str) -> None:
    """The first one is what clients send for a time that is not set. DataFusion cannot compare the first two."""
    commit_row(writer, 1, event_time=START)
    with pytest.raises(BeforeHistoryError):
        History(writer.path).resolve(time)


def test_before_the_first_and_after_the_last_epoch(writer: LakeWriter) -> None:
    history = History(writer.path)
    with pytest.raises(FutureEpochError):
        history.resolve("1")
    with pytest.raises(FutureEpochError):
        history.resolve(at(1))
    commit_row(writer, 1)
    commit_row(writer, 2)
    for early in ("0", at(0.5), "1999-01-01T00:00:00.000Z"):
        with pytest.raises(BeforeHistoryError, match=r"epoch 1 of 2026-01-01T00:00:01.000Z") as before:
            history.resolve(early)
        assert before.value.fields == {"as_of": early, "first_epoch": 1, "first_time": "2026-01-01T00:00:01.000Z"}
    with pytest.raises(FutureEpochError) as future:
        history.resolve("3")
    assert future.value.fields == {"epoch": 3, "newest_epoch": 2}


def test_a_time_that_has_not_come_is_refused(writer: LakeWriter) -> None:
    history = History(writer.path)
    now = datetime.now(UTC).replace(microsecond=0)
    for nothing_yet in (True, False):
        for ahead in (timedelta(minutes=2), timedelta(days=36_500)):
            with pytest.raises(FutureTimeError, match="is in the future: this machine.s time is 20"):
                history.resolve(rfc3339(now + ahead))
        if nothing_yet:
            commit_row(writer, 1)
    assert history.resolve(rfc3339(now + timedelta(seconds=20))).commit.epoch == 1  # with a clock that is ahead
    commit_row(writer, 2, event_time=now + timedelta(hours=1))  # the log's clock is ahead of this machine's
    assert history.resolve(rfc3339(now + timedelta(hours=1))).commit.epoch == 2
    with pytest.raises(FutureTimeError):
        history.resolve(rfc3339(now + timedelta(hours=1, minutes=2)))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("1767225601", "seconds"),
        ("1767225601.25", "seconds"),
        ("1767225601000", "milliseconds"),
        ("1767225601000000", "microseconds"),
        ("1767225601000000000", "nanoseconds"),
    ],
)
def test_a_unix_time_is_refused_with_what_to_write(writer: LakeWriter, text: str, unit: str) -> None:
    history = History(writer.path)
    commit_row(writer, 1)
    for name in ("as_of", "from"):
        with pytest.raises(
            BadRequestError, match=rf"in {unit}: write {name}=2026-01-01T00:00:01.000Z for {text}"
        ) as refused:
            history.resolve(text, name)
        assert refused.value.fields["field"] == name


def test_an_epoch_that_looks_like_a_unix_time_is_an_epoch(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(writer.path)
    commit_row(writer, 1)
    history.resolve("1")
    monkeypatch.setattr(type(history._epochs), "newest", 1_767_225_602)
    with pytest.raises(VacuumedError):  # no such epoch here, but there might be
        history.resolve("1767225601")


def test_epochs_newest_first(writer: LakeWriter) -> None:
    for number in range(1, 6):
        commit_row(writer, number)
    history = History(writer.path)
    assert [commit.epoch for commit in history.epochs(3)] == [5, 4, 3]
    assert [commit.epoch for commit in history.epochs(3, before=3)] == [2, 1]
    writer.table("routeCommitTable").optimize.compact()
    commit_row(writer, 6)
    assert [commit.epoch for commit in history.epochs(2)] == [6, 5]
    with pytest.raises(BadRequestError):
        history.epochs(0)
    assert [commit.epoch for commit in history.epochs(2, before=100)] == [6, 5]
    with pytest.raises(BadRequestError, match="looks like a Unix time"):
        history.epochs(2, before=1_767_225_601)


def test_no_lake_yet(tmp_path: Path) -> None:
    history = History(tmp_path / "nothing")
    for ask in (lambda: history.resolve("1"), history.epochs, lambda: changes_of(history, "t")):
        with pytest.raises(UnavailableError):
            ask()
    LakeWriter(tmp_path / "nothing")
    assert history.epochs() == [] and changes_of(history, "t") == ChangePage([], None)


def test_a_newer_lake(writer: LakeWriter) -> None:
    (writer.path / "lake.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(SetupError):
        History(writer.path).resolve("1")


def test_another_lake_in_the_same_place(writer: LakeWriter) -> None:
    for number in range(1, 4):
        commit_row(writer, number)
    history = History(writer.path)
    assert queues(history.route("orders", "1")) == 1
    shutil.rmtree(writer.path)
    other = LakeWriter(writer.path)
    for number in range(11, 16):
        commit_row(other, number, event_time=START + timedelta(days=1, seconds=number))
    assert queues(history.route("orders", "1")) == 11
    assert history.resolve("5").commit.log_offset == 5


# --- vacuum and log clean-up ---


def vacuum(writer: LakeWriter) -> None:
    for spec in STATE_TABLES:
        writer.table(spec.name).vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_commits_are_read_on_after_route_commit_table_was_compacted_and_vacuumed(writer: LakeWriter) -> None:
    for _ in range(3):
        writer.commit(row(1, topic=f"t{writer.epoch}"))
    history = History(writer.path)
    assert [commit.epoch for commit in history.epochs(1)] == [3]
    table = writer.table(ROUTE_COMMIT_TABLE.name)
    table.optimize.compact()
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert [commit.epoch for commit in history.epochs(3)] == [3, 2, 1]


def reread(nums: int) -> list[dict[str, Any]]:
    """Changes from which the rows of `commit_row` can be made again."""
    addresses: dict[str, Any] = {"table": "brokerAddrTable", "topic": None, "key": {"brokerName": "broker-a"}}
    return [
        change("REGISTER_BROKER", offset=nums, after=queue(nums=nums)),
        change("REGISTER_BROKER", offset=nums, seq=1, after=group(_0=f"a{nums}"), **addresses),
    ]


def lost_by(way: str, writer: LakeWriter) -> None:
    """Versions that are older than the newest go."""
    if way == "vacuum":
        vacuum(writer)
    else:
        for spec in STATE_TABLES:
            age_log(writer, spec.name)


@pytest.mark.parametrize("way", ["vacuum", "log clean-up"])
def test_versions_that_are_not_kept_are_tried_once(
    writer: LakeWriter, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for number in range(1, 6):
        commit_row(writer, number, history=reread(number))
    lost_by(way, writer)
    commit_row(writer, 6, history=reread(6))
    history = History(writer.path)
    opened: list[tuple[str, int]] = []
    table = PastRows.table

    def counted(rows: PastRows, spec: Table, commit: RouteCommit) -> Any:
        opened.append((spec.name, commit.epoch))
        return table(rows, spec, commit)

    monkeypatch.setattr(PastRows, "table", counted)
    for epoch in (4, 4, 1, 2):
        opened.clear()
        found = history.route("orders", str(epoch))
        assert (queues(found), json.loads(found.body)["brokerDatas"][0]["brokerAddrs"]) == (epoch, {"0": f"a{epoch}"})
    assert {name for name, _ in opened} == {"routeChangeTable"}
    assert queues(history.route("orders", "6")) == 6


def test_what_storage_cannot_answer_for_a_moment_is_not_remembered_for_long(
    writer: LakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_row(writer, 1, history=reread(1))
    history = History(writer.path)
    with monkeypatch.context() as patch:
        patch.setattr(past_rows, "_REMEMBERED_S", 0.0)
        patch.setattr(PastRows, "table", lambda *_: (_ for _ in ()).throw(OSError("disk trouble")))
        with pytest.raises(UnavailableError, match="disk trouble"):
            history.route("orders", "1")
    assert queues(history.route("orders", "1")) == 1


def test_a_version_that_could_not_be_read_once_is_read_again(
    writer: LakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history has no heartbeat times, so it replaces a version only while that cannot be read."""
    commit_row(writer, 1, history=reread(1))
    history = History(writer.path)
    table = PastRows.table
    failed: list[str] = []

    def fail_once(rows: PastRows, spec: Table, commit: RouteCommit) -> Any:
        if spec is TOPIC_QUEUE_TABLE and not failed:
            failed.append(spec.name)
            raise OSError("Too many open files (os error 24)")
        return table(rows, spec, commit)

    monkeypatch.setattr(PastRows, "table", fail_once)
    with capture_logs() as said:
        assert queues(history.route("orders", "1")) == 1
    assert [(line["event"], line["table"], line["epoch"]) for line in said] == [
        ("cannot read an old version of a table", TOPIC_QUEUE_TABLE.name, 1)
    ]
    assert history._rows._not_kept[0] == 0


def test_what_was_read_stays_readable_from_memory(writer: LakeWriter) -> None:
    for number in range(1, 4):
        commit_row(writer, number)
    history = History(writer.path)
    first = history.route("orders", history.resolve("1"))
    vacuum(writer)
    assert history.route("orders", "1") is first


# --- routes ---


def test_past_routes_equal_the_views_of_their_time(writer: LakeWriter) -> None:
    writer.commit(complete_rows(EVERY_FIELD))
    writer.commit(
        complete_rows({"topicQueueTable": {("b'4\" x/1%=ü", "orders"): queue(4), ("broker-a", "o'th\\er"): queue()}})
    )
    writer.commit(complete_rows({"brokerAddrTable": {("b'4\" x/1%=ü",): group(acting=True, _1="s1")}}))
    writer.commit({"topicQueueTable": {("broker-a", "orders"): None}})
    writer.commit(complete_rows({"kvConfigTable": {("ORDER_TOPIC_CONFIG", "orders"): {"value": None}}}))
    writer.commit({"topicQueueTable": {("b'4\" x/1%=ü", "orders"): None}})
    history = History(writer.path)
    for commit in commits_between(writer.path, active(str(writer.path / "routeCommitTable")).files):
        view = load_view(str(writer.path), commit)
        for topic in ("orders", "o'th\\er", "unknown"):
            for switch in (False, True):
                expected = pick_up_topic_route(view, topic, support_acting_master=switch, order_message_enable=switch)
                if expected is None:
                    with pytest.raises(NotFoundError) as missing:
                        history.route(topic, AsOf(commit), support_acting_master=switch, order_message_enable=switch)
                    assert missing.value.code == 17
                    assert missing.value.fields["epoch"] == commit.epoch
                    continue
                found = history.route(topic, AsOf(commit), support_acting_master=switch, order_message_enable=switch)
                assert found.body == encode_topic_route(expected, numeric_keys=False) and found.commit == commit
                again = history.route(topic, AsOf(commit), support_acting_master=switch, order_message_enable=switch)
                assert again is found


# --- changes ---


def change(
    command: str,
    *,
    offset: int,
    seq: int = 0,
    table: str | None = "topicQueueTable",
    broker: str | None = "broker-a",
    topic: str | None = "orders",
    seconds: float | None = None,
    outcome: str = "applied",
    reason: str | None = None,
    key: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "offset": offset,
        "seq": seq,
        "eventTime": START + timedelta(seconds=offset if seconds is None else seconds),
        "command": command,
        "outcome": outcome,
        "reason": reason,
        "actor": json.dumps({"gateway": "g1", "via": "remoting", "peer": "10.0.0.9:1"}),
        "tableName": table,
        "brokerName": broker,
        "topic": topic,
        "key": json.dumps(key or {"brokerName": broker, "topic": topic}, separators=(",", ":")),
        "before": None if before is None else json.dumps(before),
        "after": None if after is None else json.dumps(after),
    }


@pytest.fixture
def night_history(writer: LakeWriter) -> History:
    """A night: registered, a slave came and went, wiped, expired, refused, deleted; and things that do not matter."""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    writer.commit(
        {},
        history=[
            change("REGISTER_BROKER", offset=1, after=queue()),
            change("REGISTER_BROKER", offset=1, seq=1, topic="other", after=queue()),
            change("REGISTER_BROKER", offset=1, seq=2, table="brokerAddrTable", topic=None, after=group(_0="a0")),
            change("REGISTER_BROKER", offset=1, seq=3, table="brokerLiveTable", topic=None),
            change("REGISTER_BROKER", offset=1, seq=4, table="clusterAddrTable", topic=None),
            change("REGISTER_BROKER", offset=2, broker="stranger", topic="other", after=queue()),
            change("REGISTER_BROKER", offset=2, seq=1, broker="stranger", table="brokerAddrTable", topic=None),
        ],
    )
    writer.commit(
        {},
        history=[
            change("PUT_KV_CONFIG", offset=3, table="kvConfigTable", broker=None, topic=None, key=order),
            change("PUT_KV_CONFIG", offset=3, seq=-1, table=None, broker=None, topic=None, key=order),
            change("PUT_KV_CONFIG", offset=4, table="kvConfigTable", broker=None, topic=None, key={"namespace": "x"}),
            change("WIPE_WRITE_PERM_OF_BROKER", offset=5, before=queue(), after=queue(4)),
        ],
    )
    writer.commit(
        {},
        history=[
            # Its offset is that of the last heartbeat, long before: the time tells.
            change("BROKER_EXPIRED", offset=2, seconds=120, before=queue(4)),
            change("BROKER_EXPIRED", offset=2, seq=1, seconds=120, table="brokerAddrTable", topic=None),
            change(
                "REGISTER_BROKER",
                offset=6,
                seq=-1,
                table=None,
                topic=None,
                outcome="rejected",
                reason="SINGLE_TOPIC_REFUSED",
            ),
            change("REGISTER_BROKER", offset=7, seq=-1, table=None, broker="stranger", topic=None, outcome="rejected"),
            change("DELETE_TOPIC_IN_NAMESRV", offset=130, seq=-1, table=None, broker=None),
        ],
    )
    # Rows that no epoch has made visible yet.
    writer.commit({}, history=[change("DELETE_TOPIC_IN_NAMESRV", offset=131, seq=-1)], only_tables=True)
    return History(writer.path)


NIGHT = [
    ("DELETE_TOPIC_IN_NAMESRV", 130, -1),
    ("BROKER_EXPIRED", 2, 1),
    ("BROKER_EXPIRED", 2, 0),
    ("REGISTER_BROKER", 6, -1),
    ("WIPE_WRITE_PERM_OF_BROKER", 5, 0),
    ("PUT_KV_CONFIG", 3, 0),
    ("REGISTER_BROKER", 1, 2),
    ("REGISTER_BROKER", 1, 0),
]


def short(changes: list[Change]) -> list[tuple[str, int, int]]:
    return [(found.command, found.offset, found.seq) for found in changes]


def test_who_did_that_to_my_topic(night_history: History) -> None:
    page = changes_of(night_history, "orders")
    assert short(page.changes) == NIGHT
    assert page.next_cursor is None
    wiped = page.changes[4]
    assert wiped.before is not None and wiped.after is not None
    assert (wiped.before["perm"], wiped.after["perm"]) == (6, 4)
    assert wiped.actor == {"gateway": "g1", "via": "remoting", "peer": "10.0.0.9:1"}
    assert (wiped.epoch, wiped.event_time, wiped.key) == (
        2,
        START + timedelta(seconds=5),
        {"brokerName": "broker-a", "topic": "orders"},
    )
    assert page.changes[3].reason == "SINGLE_TOPIC_REFUSED"


def pages(history: History, limit: int) -> Iterator[ChangePage]:
    page = changes_of(history, "orders", limit=limit)
    yield page
    while page.next_cursor is not None:
        page = changes_of(history, "orders", page.next_cursor, limit)
        yield page


@pytest.mark.parametrize("window", [1, 2, 256])
def test_paging(night_history: History, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "_FIRST_WINDOW", window)
    for limit in (1, 3, 7):
        found = [page.changes for page in pages(night_history, limit)]
        assert short([change for changes in found for change in changes]) == NIGHT
        assert {len(changes) for changes in found[:-1]} <= {limit}


@pytest.mark.parametrize("room_bytes", [1, 300, 1_000])
def test_a_page_ends_where_its_bytes_end(
    night_history: History, room_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(found: Change) -> int:
        return sum(len(json.dumps(part)) for part in (found.actor, found.key, found.before, found.after) if part)

    monkeypatch.setattr(changelog, "MAX_PAGE_BYTES", room_bytes)
    found = [page.changes for page in pages(night_history, 100)]
    for changes in found:
        assert len(changes) == 1 or sum(map(size, changes)) <= room_bytes * 1.1  # blanks of json.dumps
    assert short([change for changes in found for change in changes]) == NIGHT


def test_large_values_make_short_pages(writer: LakeWriter) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    large = [{"value": f"{number:06d}" + "v" * 240_000} for number in range(31)]
    puts = [
        change("PUT_KV_CONFIG", offset=at, table="kvConfigTable", topic=None, key=order, before=before, after=after)
        for at, (before, after) in enumerate(itertools.pairwise(large))
    ]
    writer.commit({}, history=puts)
    history = History(writer.path)
    page = changes_of(history, "orders", limit=1000)
    found = [change.offset for change in page.changes]
    assert found == list(range(29, 29 - len(found), -1))
    assert 2 <= len(found) * 480_000 <= changelog.MAX_PAGE_BYTES
    older = changes_of(history, "orders", page.next_cursor, limit=1000)
    assert older.changes[0].offset == 29 - len(found)


def test_from_and_to(night_history: History) -> None:
    assert short(changes_of(night_history, "orders", from_="1", to="2").changes) == NIGHT[4:6]
    assert short(changes_of(night_history, "orders", from_="2").changes) == NIGHT[:4]
    assert changes_of(night_history, "orders", from_=at(1000)).changes == []


def test_changes_of_nothing(night_history: History) -> None:
    assert changes_of(night_history, "unknown'; DROP TABLE t; --") == ChangePage([], None)


@pytest.mark.parametrize(
    "arguments",
    [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "W10"}, {"from_": "yesterday"}, {"to": "-1"}],
)
def test_bad_questions(night_history: History, arguments: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        changes_of(night_history, "orders", **arguments)


def test_new_changes_show_after_the_next_epoch(night_history: History, writer: LakeWriter) -> None:
    newest = night_history.resolve("now").commit.epoch
    assert len(changes_of(night_history, "orders").changes) == len(NIGHT)
    writer.commit({}, history=[change("REGISTER_BROKER", offset=140, after=queue())])
    page = changes_of(night_history, "orders", from_=str(newest))
    assert short(page.changes) == [("REGISTER_BROKER", 140, 0), ("DELETE_TOPIC_IN_NAMESRV", 131, -1)]


def test_what_is_kept_is_bounded_by_its_bytes(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    room_bytes = 2_000_000
    monkeypatch.setattr(history_module, "_ROUTES_BYTES", room_bytes)
    monkeypatch.setattr(history_module, "_CONTEXTS_BYTES", room_bytes)
    monkeypatch.setattr(past_rows, "_TABLES_BYTES", room_bytes)
    topics = [f"{number:03d}-{'t' * 20_000}" for number in range(150)]
    for epoch in range(1, 16):
        changed = topics if epoch == 1 else topics[:1]
        rows: TableChanges = {"topicQueueTable": {("broker-a", topic): queue(nums=epoch) for topic in changed}}
        rows["brokerAddrTable"] = {("broker-a",): group(_0=f"10.0.0.1:{epoch}")}
        writer.commit(complete_rows(rows))
    history = History(writer.path)
    for topic in topics:
        history.route(topic, "1")
        changes_of(history, topic)
    for epoch in range(1, 16):
        history.resolve(str(epoch))
        with pytest.raises(NotFoundError):
            history.route("unknown", str(epoch))
    for cache in (history._routes, history.contexts, history._rows._tables):
        assert room_bytes * 0.5 < cache.bytes <= room_bytes


def test_commits_are_counted_until_maintenance_compacts_their_files() -> None:
    assert past_rows._COMMITS == maintenance.COMPACT_EVERY_COMMITS  # an import would load it into each gateway


def test_many_threads_at_once(writer: LakeWriter) -> None:
    for number in range(1, 6):
        commit_row(writer, number, history=[change("REGISTER_BROKER", offset=number, after=queue())])
    history = History(writer.path)

    def ask(number: int) -> tuple[int, int, int]:
        epoch = 1 + number % 5
        found = history.route("orders", str(epoch))
        return queues(found), len(changes_of(history, "orders").changes), history.epochs()[0].epoch

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(ask, number) for number in range(40)]
        commit_row(writer, 6)
        found = [future.result() for future in running]
    assert [nums for nums, _, _ in found] == [1 + number % 5 for number in range(40)]
    assert {count for _, count, _ in found} == {5}
    assert {newest for _, _, newest in found} <= {5, 6}

# SPDX-License-Identifier: Apache-2.0
"""A timeline at a moment is what ``as_of`` says; blame names an epoch in which the field became what it is."""

from __future__ import annotations

import itertools
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import ASSORTMENT, batches, generated, time_of, written
from lake.history.changelog import Change, ChangesAsked, list_changes
from lake.history.filters import Filters
from lake.history.history import History, broker_at
from lake.history.provenance import topic_blame
from lake.history.state_at import Condition
from lake.history.timeline import Interval, Timeline, Window, broker_timeline, topic_timeline
from schemas.errors import BadRequestError, NotFoundError
from schemas.tables import TOPIC_QUEUE_TABLE

STEP = timedelta(milliseconds=1)


def whole(ask: Any, limit: int) -> list[Interval]:
    """Oldest first."""
    found, cursor = list[Interval](), None
    while True:
        page: Timeline = ask(limit=limit, cursor=cursor)
        found += page.intervals
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]
        assert len(page.intervals) == limit


def check_no_hole(intervals: list[Interval]) -> None:
    for earlier, later in itertools.pairwise(intervals):
        assert earlier.to == later.from_ > earlier.from_
        assert (earlier.to_epoch, earlier.ended_by) == (later.from_epoch, later.begun_by)
        assert earlier.state != later.state
    assert intervals[-1].to is None


def at(intervals: list[Interval], time: datetime) -> dict[str, Any] | None:
    found = [each.state for each in intervals if each.from_ <= time and (each.to is None or time < each.to)]
    assert len(found) <= 1
    return found[0] if found else None


def lake_of(folder: Path, seed: int, sizes: tuple[int, ...], changes: int) -> tuple[History, list[datetime]]:
    """A history, and moments of it: at so many changes, and just before them."""
    rng = random.Random(seed)
    steps = [(rng.choice((1, 1500, 4000)), rng.choice(ASSORTMENT)) for _ in range(60)]
    records = generated(seed) if seed == 1 else written(steps)
    drive(folder, list(batches(records, sizes)))
    times = [datetime.fromisoformat(time_of(record)) for record in rng.sample(records, changes)]
    return History(folder), sorted({*times, *(time - STEP for time in times)})


@pytest.mark.parametrize(
    ("seed", "sizes"), [(1, (9, 1, 20)), pytest.param(2, (5,), marks=pytest.mark.deep), (3, (31, 1))]
)
def test_a_timeline_equals_the_answer_at_each_point_in_time(
    is_deep: bool, tmp_path: Path, seed: int, sizes: tuple[int, ...]
) -> None:
    history, moments = lake_of(tmp_path, seed, sizes, 12 if is_deep else 6)
    first = history.resolve("1").commit.event_time
    moments = [moment for moment in moments if moment >= first]
    everything = list_changes(history, ChangesAsked(), limit=1000).changes
    topics = sorted({change.topic for change in everything if change.table_name == "topicQueueTable" and change.topic})
    compared = 0
    for topic in topics:
        intervals = whole(lambda topic=topic, **more: topic_timeline(history, topic, **more), 3)
        check_no_hole(intervals)
        assert whole(lambda topic=topic, **more: topic_timeline(history, topic, **more), 1000) == intervals
        for moment in moments:
            state = at(intervals, moment) or {"brokers": []}
            as_of = moment.isoformat()
            rows = history.view(history.resolve(as_of), {TOPIC_QUEUE_TABLE.name: Condition()}).topics.get(topic)
            assert [each["brokerName"] for each in state["brokers"]] == ([] if rows is None else list(rows.brokers))
            try:
                route = json.loads(history.route(topic, as_of).body)
            except NotFoundError:
                continue
            compared += 1
            queues = [
                {name: each[name] for name in row}
                for row, each in zip(route["queueDatas"], state["brokers"], strict=True)
            ]
            assert queues == route["queueDatas"]
            addresses = {
                each["brokerName"]: each["brokerAddrs"] for each in state["brokers"] if each["brokerAddrs"] is not None
            }
            assert addresses == {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]}
            assert state["writable"] == any(row["perm"] & 2 and row["writeQueueNums"] for row in queues)
    assert compared
    for name in sorted(
        {change.broker_name for change in everything if change.table_name == "brokerLiveTable"}, key=str
    ):
        assert name is not None
        intervals = whole(lambda name=name, **more: broker_timeline(history, name, **more), 2)
        check_no_hole(intervals)
        for moment in moments:
            view = broker_at(history, history.resolve(moment.isoformat()), name)
            live = sorted(view.live_rows(name))
            state = at(intervals, moment) or {"live": [], "brokerAddrs": None, "alive": False}
            assert sorted((each["clusterName"], each["brokerAddr"]) for each in state["live"]) == live
            assert state["alive"] == bool(live)
            group = view.groups.get(name)
            found = (
                None if group is None else {str(key): value for key, value in view.broker_member_group(name).items()}
            )
            assert (state["brokerAddrs"] or None) == (found or None)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_pages_that_read_little_make_the_same(is_deep: bool, tmp_path: Path, seed: int) -> None:
    """Without --deep, a topic in pages of one size, a broker in pages of others, and half of the windows."""
    all_sizes = ((1, 1), (3, 2), (7, 1000))
    history, moments = lake_of(tmp_path, seed, (5,), 12)
    first = history.resolve("1").commit.event_time
    moments = [moment for moment in moments if moment >= first]
    for name, timeline, sizes in (("T", topic_timeline, all_sizes[:1]), ("b", broker_timeline, all_sizes[1:])):
        everything = whole(lambda name=name, ask=timeline, **more: ask(history, name, **more), 1000)
        assert len(everything) > 3
        for max_steps, limit in all_sizes if is_deep else sizes:
            pages = in_pages(history, timeline, name, Window(), limit, max_steps)
            assert pages == everything
        for begin, end in itertools.pairwise(moments[:: 3 if is_deep else 6]):
            window = Window(begin.isoformat(), end.isoformat())
            found = in_pages(history, timeline, name, window, 2, 4)
            assert found == in_pages(history, timeline, name, window, 1000, 20_000)
            wanted = [each for each in everything if each.from_ <= end and (each.to is None or each.to > begin)]
            assert [(each.from_, each.state, each.begun_by) for each in found] == [
                (each.from_, each.state, each.begun_by) for each in wanted
            ]
            assert [each.to for each in found] == [
                None if each.to is None or each.to > end else each.to for each in wanted
            ]


def test_pages_that_show_little_make_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history, _ = lake_of(tmp_path, 1, (9,), 12)
    everything = whole(lambda **more: topic_timeline(history, "T", **more), 1000)
    monkeypatch.setattr("lake.history.timeline.MAX_SHOWN", 3)
    page = topic_timeline(history, "T", limit=1000)
    assert 0 < len(page.intervals) < len(everything)
    assert in_pages(history, topic_timeline, "T", Window(), 1000, 20_000) == everything


def in_pages(history: History, timeline: Any, name: str, window: Window, limit: int, max_steps: int) -> list[Interval]:
    """Oldest first; pages may be short."""
    found, cursor = list[Interval](), None
    while True:
        page = timeline(history, name, window, limit=limit, cursor=cursor, max_steps=max_steps)
        found += page.intervals
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


def test_blame_names_an_epoch_in_which_the_field_changed(is_deep: bool, tmp_path: Path) -> None:
    asked_at = 8 if is_deep else 2
    history, moments = lake_of(tmp_path, 1, (9, 1, 20), 12)
    fields = 0
    for topic in ("T", "U"):
        for moment in [*moments[-asked_at:], datetime.now(UTC)]:
            found = topic_blame(history, topic, moment.isoformat())
            try:
                route = json.loads(history.route(topic, moment.isoformat()).body)
            except NotFoundError:
                assert found.fields == []
                continue
            values = {(each.broker_name, each.field): each.value for each in found.fields}
            for row in route["queueDatas"]:
                for name in ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag"):
                    assert values[row["brokerName"], name] == row[name]
            for row in route["brokerDatas"]:
                for broker_id, address in row["brokerAddrs"].items():
                    assert values[row["brokerName"], f"brokerAddrs.{broker_id}"] == address
            for each in found.fields:
                fields += 1
                filters = Filters(broker_name=each.broker_name, table_name=each.table_name)
                asked = ChangesAsked(
                    from_=str(each.epoch - 1) if each.epoch > 1 else None, to=moment.isoformat(), filters=filters
                )
                changes = list_changes(history, asked, limit=1000).changes
                at_it = [
                    change for change in changes if change.epoch == each.epoch and change.event_time == each.event_time
                ]
                assert any(became(change, each.field, each.value) for change in at_it)
                later = [
                    change for change in changes if (change.epoch, change.event_time) > (each.epoch, each.event_time)
                ]
                of_row = [change for change in later if change.topic in (None, topic)]
                assert all(value(change.after, each.field) == each.value for change in of_row)
    assert fields


def became(change: Change, field: str, wanted: Any) -> bool:
    """Whether a change gave the field this value, which it had not."""
    came = change.before is None or value(change.before, field) != wanted
    return came and change.after is not None and value(change.after, field) == wanted


def value(row: dict[str, Any] | None, field: str) -> Any:
    name, _, broker_id = field.partition(".")
    found = {} if row is None else row
    return found.get(name) if not broker_id else (found.get(name) or {}).get(broker_id)


def test_timeline_and_blame_name_the_command(tmp_path: Path) -> None:
    records = written([(0, make.register("a:1", name="a")), (5, make.wipe("a")), (5, make.delete_topic("T"))])
    drive(tmp_path, [[record] for record in records])
    history = History(tmp_path)
    gone, wiped, made = topic_timeline(history, "T").intervals
    assert [each.begun_by.command for each in (made, wiped, gone)] == [
        *("REGISTER_BROKER", "WIPE_WRITE_PERM_OF_BROKER", "DELETE_TOPIC_IN_NAMESRV")
    ]
    assert (made.state["writable"], wiped.state["writable"], wiped.state["readable"]) == (True, False, True)
    assert gone.state == {"writable": False, "readable": False, "writeQueueNums": 0, "readQueueNums": 0, "brokers": []}
    assert (gone.to, gone.ended_by, wiped.to_epoch) == (None, None, 3)
    blamed = {each.field: each.set_by.command for each in topic_blame(history, "T", "2").fields}
    assert (blamed["perm"], blamed["writeQueueNums"]) == ("WIPE_WRITE_PERM_OF_BROKER", "REGISTER_BROKER")
    assert topic_blame(history, "T", "now").fields == []
    assert topic_timeline(history, "nothing").intervals == []
    page = topic_timeline(history, "T", limit=1)
    assert page.next_cursor is not None
    with pytest.raises(BadRequestError, match="other parameters"):
        topic_timeline(history, "U", cursor=page.next_cursor)
    with pytest.raises(BadRequestError, match="limit"):
        broker_timeline(history, "a", limit=0)


def test_an_empty_lake_has_an_empty_timeline(tmp_path: Path) -> None:
    drive(tmp_path, [])
    assert topic_timeline(History(tmp_path), "T").intervals == broker_timeline(History(tmp_path), "a").intervals == []

# SPDX-License-Identifier: Apache-2.0
"""Head and tables are compared, epoch by epoch: what is right is never told, what is wrong is found in every table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.live_view import check as check_module
from api.live_view.check import Comparison
from api.live_view.live_state import LiveState
from dev.support import events as make
from dev.support.generated_logs import batches, cuts, logs, written
from dev.support.patches import in_this_thread
from dev.support.view_tables import as_tables
from eventlog.base import LogRecord
from nameserver.state_machine import liveness
from nameserver.state_machine.state import LiveInfo, RegisteredMapping
from nameserver.view.model import BrokerRow, Changes
from nameserver.view.snapshot import RouteView
from schemas.events import AnyEvent, encode, routing_key
from schemas.route_commit import NO_COMMIT
from tests.api.live_view.tables import Epoch, Tables

turns = st.lists(st.tuples(st.booleans(), st.sampled_from((0, 0, 1, 3, 20))), min_size=1)
"""Of each batch: whether heartbeats are written, and how far the head is ahead."""


def ended(records: Sequence[LogRecord]) -> list[LogRecord]:
    """The log, with a CLOCK at which everybody who is silent has expired, and one more."""
    last = records[-1]
    event = make.clock()
    more = [(last.offset + 1, last.event_time_ms + 70_000), (last.offset + 2, last.event_time_ms + 70_001)]
    return [*records, *(LogRecord(*place, routing_key(event), encode(event)) for place in more)]


def epochs_of(
    records: Sequence[LogRecord], sizes: Sequence[int], turns: Sequence[tuple[bool, int]]
) -> list[tuple[Epoch, int]]:
    """Each epoch, and how far the head is ahead of it; the last one tells everything."""
    tables = Tables()
    found: list[tuple[Epoch, int]] = []
    *most, last = records
    for number, batch in enumerate(batches(most, sizes)):
        flush, ahead = turns[number % len(turns)]
        epoch = tables.fold(batch, flush=flush)
        if epoch is not None:
            found.append((epoch, ahead))
    epoch = tables.fold([last], always=True)
    assert epoch is not None
    return [*found, (epoch, 0)]


def compared(
    head: LiveState, records: Sequence[LogRecord], epochs: Sequence[tuple[Epoch, int]], shown: set[int]
) -> list[Comparison]:
    """What comes of comparing each epoch, when the head has folded it and some more; shown now and then."""
    found = []
    place = 0
    for epoch, ahead in epochs:
        while place < len(records) and records[place].offset <= epoch.view.log_offset + ahead:
            head.take(records[place])
            if records[place].offset in shown:
                head.publish(NO_COMMIT)
            place += 1
        if head.is_urgent:
            head.publish(NO_COMMIT)
        head.moved(epoch.changes)
        found.append(head.compare(epoch.view))
    return found


def differs(head: LiveState, tables: RouteView) -> bool:
    return as_tables(head.publish(NO_COMMIT)) != as_tables(tables)


def is_idle(head: LiveState) -> bool:
    """Whether nothing waits to be compared."""
    check = head._check
    left = (check._groups.keys(), check._touched, check._heard, check._kv.keys(), check._topics, check._changed)
    return not any((*left, check._all_topics, check._everything, check._told))


@given(logs.map(ended), cuts, turns, st.sets(st.integers(0, 40)), st.booleans())
def test_equal_rows_are_not_reported(
    records: list[LogRecord],
    sizes: list[int],
    turns: list[tuple[bool, int]],
    shown: set[int],
    everything: bool,
) -> None:
    """Whatever epochs the log is cut into, however late they are; and in the end all of it was compared."""
    epochs = epochs_of(records, sizes, turns)
    head = LiveState(RouteView.empty(), everything=everything)
    for found in compared(head, records, epochs, shown):
        assert (found.examples, found.is_whole) == ([], True)
    assert is_idle(head)
    assert not differs(head, epochs[-1][0].view)


@given(logs.map(ended), cuts, turns, st.sets(st.integers(0, 40)), st.integers(0, 39))
def test_a_record_that_the_head_misses_is_found(
    records: list[LogRecord], sizes: list[int], turns: list[tuple[bool, int]], shown: set[int], missed: int
) -> None:
    """Unless it makes no difference in the end."""
    epochs = epochs_of(records, sizes, turns)
    head = LiveState(RouteView.empty())
    kept = [record for number, record in enumerate(records) if number != missed % (len(records) - 2)]
    found = compared(head, kept, epochs, shown)
    if differs(head, epochs[-1][0].view):
        assert any(one.counts for one in found)


# --- what is wrong, table by table ---

FIRST = [
    make.register(
        "b:1",
        table=make.topics("T", "U"),
        filter_server_list=["f:1"],
        topic_queue_mapping_info_map={"T": make.mapping("T")},
    ),
    make.register("x:1", name="x", table=make.topics("T", "V")),
    make.put("n", "k", "1"),
]


def begun() -> tuple[LiveState, Tables]:
    """A head and tables that agree."""
    records = written([(1, event) for event in FIRST])
    head, tables = LiveState(RouteView.empty()), Tables()
    epoch = tables.fold(records)
    for record in records:
        head.take(record)
    assert epoch is not None
    assert not told(head, epoch)
    return head, tables


def told(head: LiveState, epoch: Epoch) -> dict[str, int]:
    """What differs, by table."""
    head.publish(NO_COMMIT)
    head.moved(epoch.changes)
    found = head.compare(epoch.view)
    assert found.counts.total() == len(found.examples)
    return dict(found.counts)


def place(head: LiveState) -> tuple[int, int]:
    return head.offset + 1, round(head.view.event_time.timestamp() * 1000) + 1


def record_of(event: AnyEvent, at: tuple[int, int]) -> LogRecord:
    return LogRecord(*at, routing_key(event), encode(event))


LIVE_KEY = ("b", "c", "b:1")
ROW = (4, 4, 6, 0)
PLANTED: dict[str, dict[str, Any]] = {
    "topicQueueTable added": {"topic_rows": [("new", ("b",), (ROW,))]},
    "topicQueueTable changed": {"topic_rows": [("T", ("b",), (ROW,))]},
    "topicQueueTable removed": {"topic_rows": [("U", ("b",), (None,))]},
    "brokerAddrTable added": {"brokers": {"y": BrokerRow("c", {0: "y:1"}, None, False)}},
    "brokerAddrTable changed": {"brokers": {"b": BrokerRow("c", {0: "b:1"}, "zone", False)}},
    "brokerAddrTable removed": {"brokers": {"b": None}},
    "clusterAddrTable added": {"clusters": {("d", "b"): True}},
    "clusterAddrTable removed": {"clusters": {("c", "b"): False}},
    "brokerLiveTable added": {"live": {("b", "c", "b:2"): "equal"}},
    "brokerLiveTable changed": {"live": {LIVE_KEY: "other"}},
    "brokerLiveTable deadline": {"live": {LIVE_KEY: "later"}},
    "brokerLiveTable removed": {"live": {LIVE_KEY: None}},
    "filterServerTable added": {"filter_servers": {("x", "c", "x:1"): ("f:1",)}},
    "filterServerTable changed": {"filter_servers": {LIVE_KEY: ("f:2",)}},
    "filterServerTable removed": {"filter_servers": {LIVE_KEY: None}},
    "topicQueueMappingInfoTable added": {"mappings": {("x", "T", "x"): RegisteredMapping(make.mapping("T", "x"), 2)}},
    "topicQueueMappingInfoTable changed": {"mappings": {("b", "T", "b"): RegisteredMapping(make.mapping("T"), 9)}},
    "topicQueueMappingInfoTable removed": {"mappings": {("b", "T", "b"): None}},
    "kvConfigTable added": {"kv": {("n", "l"): ("1",)}},
    "kvConfigTable changed": {"kv": {("n", "k"): ("2",)}},
    "kvConfigTable removed": {"kv": {("n", "k"): None}},
}


def live_row_of(tables: Tables, kind: object) -> LiveInfo | None:
    row = tables.view.live_row(*LIVE_KEY)
    assert row is not None
    if kind == "equal":
        return row
    if kind == "other":
        return msgspec.structs.replace(row, ha_server_addr="ha:1")
    return msgspec.structs.replace(row, expire_ms=row.expire_ms + 1) if kind == "later" else None


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("everything", [False, True])
def test_a_wrong_row_of_the_tables_is_found(what: str, everything: bool) -> None:
    head, tables = begun()
    parts = dict(PLANTED[what])
    if "live" in parts:
        parts["live"] = {key: live_row_of(tables, kind) for key, kind in parts["live"].items()}
    commit = msgspec.structs.replace(tables.view.commit, epoch=2)
    view, changes = tables.step(Changes(commit, **parts))
    assert told(head, Epoch(view, None if everything else changes)) == {what.split()[0]: 1}


ONLY_THE_HEAD: dict[str, tuple[AnyEvent, set[str]]] = {
    "a topic added": (make.register_topic("new"), {"topicQueueTable"}),
    "a topic removed": (make.delete_topic("V"), {"topicQueueTable", "brokerLiveTable"}),
    "rows changed": (make.wipe("b"), {"topicQueueTable"}),
    "another zone": (
        make.register("b:1", table=make.topics("T", "U"), zone_name="z"),
        {"brokerAddrTable", "brokerLiveTable"},
    ),
    "another cluster": (
        make.register("b:1", cluster="d", table=make.topics("T", "U")),
        {"clusterAddrTable", "brokerLiveTable"},
    ),
    "a heartbeat": (make.heartbeat("b:1"), {"brokerLiveTable"}),
    "filter servers": (
        make.register("b:1", table=make.topics("T", "U"), filter_server_list=[]),
        {"filterServerTable", "brokerLiveTable"},
    ),
    "a mapping": (
        make.register(
            "b:1",
            table=make.topics("T", "U"),
            version=make.V2,
            topic_queue_mapping_info_map={"U": make.mapping("U")},
        ),
        {"topicQueueMappingInfoTable", "brokerLiveTable"},
    ),
    "an entry": (make.put("n", "k", "2"), {"kvConfigTable"}),
    "an entry removed": (make.delete("n", "k"), {"kvConfigTable"}),
    "a broker removed": (
        make.unregister("x:1", name="x"),
        {"brokerAddrTable", "clusterAddrTable", "brokerLiveTable", "topicQueueTable"},
    ),
}


@pytest.mark.parametrize("what", ONLY_THE_HEAD)
def test_a_wrong_row_of_the_live_view_is_found(what: str) -> None:
    """It takes an event that the tables took for a CLOCK."""
    head, tables = begun()
    event, expected = ONLY_THE_HEAD[what]
    at = place(head)
    head.take(record_of(event, at))
    epoch = tables.fold([record_of(make.clock(), at)], always=True)
    assert epoch is not None
    assert set(told(head, epoch)) == expected


def test_a_deadline_is_compared_when_the_tables_have_it() -> None:
    """And until then it waits."""
    head, tables = begun()
    clock = make.clock()
    for kind, flush, expected in (
        (make.heartbeat("b:1"), False, {}),
        (clock, False, {}),
        (clock, True, {"brokerLiveTable": 1}),
    ):
        at = place(head)
        head.take(record_of(kind, at))
        epoch = tables.fold(
            [record_of(make.heartbeat("x:1", name="x") if not flush else clock, at)], flush=flush, always=True
        )
        assert epoch is not None
        assert told(head, epoch) == dict.fromkeys(expected, 2 if flush else 1)


def test_an_expiry_that_the_head_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    head, tables = begun()
    at = place(head)
    late = (at[0], at[1] + 300_000)
    monkeypatch.setattr(liveness, "expire", in_this_thread(lambda group, now_ms: [], liveness.expire))
    head.take(record_of(make.clock(), late))
    monkeypatch.undo()
    epoch = tables.fold([record_of(make.clock(), late)], always=True)
    assert epoch is not None
    assert set(told(head, epoch)) == {
        *("topicQueueTable", "brokerAddrTable", "clusterAddrTable", "brokerLiveTable", "filterServerTable"),
    }


# --- what is kept is bounded ---


def test_values_beyond_the_bound_are_compared_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch in between counts as unchecked, and nothing is missed. Topics need no state of their group."""
    monkeypatch.setattr(check_module, "_MOST_GROUPS", 10)
    head, tables = begun()
    records = [record_of(make.register("b:1", table=make.topics("T", "U"), zone_name="z"), place(head))]
    head.take(record_of(make.register_topic("new", name="x"), place(head)))
    head.publish(NO_COMMIT)
    for number in range(80):
        event = make.heartbeat("b:1") if number % 2 else make.heartbeat("x:1", name="x")
        records.append(record_of(event, place(head)))
        head.take(records[-1])
        head.publish(NO_COMMIT)
    middle = tables.fold(records[:40])
    assert sum(len(entries) for entries in head._check._groups._of.values()) <= 10
    assert middle is not None
    head.moved(middle.changes)
    found = head.compare(middle.view)
    assert (found.counts, found.is_whole) == ({"topicQueueTable": 1}, False)
    last = tables.fold(records[40:])
    assert last is not None
    assert "brokerAddrTable" in told(head, last)


def test_a_forgotten_group_is_compared_at_the_next_whole_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is forgotten at an epoch that lacks heartbeats, where nothing else of it is to be compared."""
    monkeypatch.setattr(check_module, "_MOST_GROUPS", 10)
    head, tables = begun()
    records = []
    for number in range(40):
        records.append(record_of(make.heartbeat("b:1") if number % 2 else make.heartbeat("x:1", name="x"), place(head)))
        head.take(records[-1])
        head.publish(NO_COMMIT)
    for batch, flush in ((records[:20], False), (records[20:30], False), (records[30:], True)):
        epoch = tables.fold(batch, flush=flush, always=True)
        assert epoch is not None
        assert told(head, epoch) == {}
    commit = msgspec.structs.replace(tables.view.commit, epoch=9)
    assert told(head, Epoch(*tables.step(Changes(commit, live={LIVE_KEY: live_row_of(tables, "later")})))) == {
        "brokerLiveTable": 1
    }


def test_many_topics_are_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "_MOST_TOPICS", 10)
    head, tables = begun()
    at = place(head)
    event = make.register("b:1", table=make.topics("T", *(f"t{n}" for n in range(20))), version=make.V2)
    head.take(record_of(event, at))
    fewer = make.register("b:1", table=make.topics("T", *(f"t{n}" for n in range(19))), version=make.V2)
    epoch = tables.fold([record_of(fewer, at)])
    assert epoch is not None
    head.publish(NO_COMMIT)
    assert not head._check._topics and head._check._all_topics
    assert told(head, epoch)["topicQueueTable"] == 1


def test_many_entries_are_compared_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch in between counts as unchecked, and a wrong entry in it is found in the next one."""
    monkeypatch.setattr(check_module, "_MOST_KV", 10)
    head, tables = begun()
    records = []
    for number in range(11):
        records.append(record_of(make.put("n", f"k{number}"), place(head)))
        head.take(records[-1])
        head.publish(NO_COMMIT)
    middle = tables.fold([*records[:4], records[4]._replace(payload=encode(make.put("n", "k4", "wrong")))])
    assert middle is not None
    head.moved(middle.changes)
    found = head.compare(middle.view)
    assert (found.examples, found.is_whole) == ([], False)
    last = tables.fold(records[5:])
    assert last is not None
    assert told(head, last) == {"kvConfigTable": 1}


def test_a_row_is_told_again_when_it_changes_again() -> None:
    """Not with each event of its group."""
    head, tables = begun()

    def step(**parts: Any) -> dict[str, int]:
        """The announcement of an epoch after a heartbeat."""
        record = record_of(make.heartbeat("b:1"), place(head))
        head.take(record)
        epoch = tables.fold([record], always=True)
        assert epoch is not None
        view, moved = tables.step(Changes(epoch.view.commit, **parts))
        head.moved(epoch.changes)
        return told(head, Epoch(view, moved))

    wrong, right = BrokerRow("c", {0: "b:1"}, "zone", False), BrokerRow("c", {0: "b:1"}, None, False)
    found = [step(brokers={"b": row}) for row in (wrong, wrong, right, wrong)]
    assert found == [{"brokerAddrTable": 1}, {}, {}, {"brokerAddrTable": 1}]
    assert step() == {}
    assert step(brokers={"b": BrokerRow("c", {0: "b:2"}, "zone", False)}) == {"brokerAddrTable": 1}

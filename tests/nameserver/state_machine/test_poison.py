# SPDX-License-Identifier: Apache-2.0
"""No record stops the stream: whatever is on the log is folded or quarantined."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.support import events as make
from dev.support.any_event import absurd_events, any_events
from dev.support.expected import Expected
from dev.support.generated_logs import START_MS, written
from dev.support.microbatches import Query
from eventlog.base import LogRecord
from nameserver.state_machine import step
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import At, BrokerGroup, RouteState
from schemas.broker import DataVersion, QueueRow
from schemas.events import AnyEvent, DeleteTopic, encode, routing_key
from tests.nameserver.state_machine.test_microbatches import agree


def log_of(events: list[AnyEvent], step_ms: int = 1) -> list[LogRecord]:
    """The events, each so many ms after the one before."""
    return [
        LogRecord(offset, START_MS + offset * step_ms, routing_key(event), encode(event))
        for offset, event in enumerate(events, 1)
    ]


@settings(max_examples=min(300, 3 * settings().max_examples))
@given(
    events=st.lists(any_events, min_size=1, max_size=8),
    size=st.integers(1, 8),
    step_ms=st.sampled_from((0, 1, 200_000)),
)
def test_any_event_is_folded(events: list[AnyEvent], size: int, step_ms: int) -> None:
    records = log_of(events, step_ms)
    query = Query(2)
    for start in range(0, len(records), size):
        query.run(records[start : start + size])
    agree(query.lake, Expected(records))
    assert all(key == "b:" for _, key in query.lake.quarantine)


@settings(max_examples=min(300, 3 * settings().max_examples))
@given(events=st.lists(absurd_events, min_size=1, max_size=8))
def test_an_absurd_event_stops_nothing(events: list[AnyEvent]) -> None:
    records = log_of([*events, make.register()])
    query = Query(2)
    for record in records:
        query.run([record])
    agree(query.lake, Expected(records))
    assert ("b", "c", "a0:1") in query.lake.tables["brokerLiveTable"]


@pytest.mark.parametrize(
    "event",
    [
        make.register(table={"T": QueueRow(2**31, 8, 6, 0), "U": make.ROW}),
        make.register(broker_id=2**63),
        make.register(version=DataVersion(0, 2**63, 0)),
        make.register_topic("T", QueueRow(8, 8, 6, -(2**31) - 1)),
        make.register(heartbeat_timeout_millis=2**63),
    ],
)
def test_a_number_that_no_column_holds_is_quarantined(event: AnyEvent) -> None:
    query = Query(2)
    query.run(written([(0, make.register("x:1", name="b")), (0, event), (0, make.register("y:1", name="y"))]))
    assert [offset for offset, _ in query.lake.quarantine] == [2]
    assert {key[0] for key in query.lake.tables["brokerAddrTable"]} == {"b", "y"}


@pytest.mark.parametrize("name", ["", "x" * 241, "%" * 81, "é" * 41])
def test_a_broker_name_that_no_directory_can_bear_is_quarantined(name: str) -> None:
    query = Query(2)
    records = written([(0, make.register(name=name)), (0, make.wipe(name)), (0, make.register("y:1", name="y"))])
    query.run(records)
    assert [offset for offset, _ in query.lake.quarantine] == [1, 2]
    assert {key[0] for key in query.lake.tables["brokerAddrTable"]} == {"y"}
    assert set(replay(RouteState(), records).groups) == {"y"}


@pytest.mark.parametrize("name", ["x" * 240, "%" * 80, "é" * 40, "\n", "\x00"])
def test_any_other_name_is_folded(name: str) -> None:
    query = Query(2)
    query.run(written([(0, make.register(name=name))]))
    assert {key[0] for key in query.lake.tables["brokerAddrTable"]} == {name}


def test_a_rule_that_fails_for_one_group_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the stream, nor where a lost state is rebuilt from the log."""
    delete = step._GROUP_RULES[DeleteTopic]

    def fail_for_b(group: BrokerGroup, event: DeleteTopic, at: At) -> object:
        if group.broker_name == "b":
            raise KeyError("a defect")
        return delete(group, event, at)

    monkeypatch.setitem(step._GROUP_RULES, DeleteTopic, fail_for_b)
    records = written([(0, make.register("a:1", name="a")), (0, make.register()), (0, make.delete_topic("T"))])
    query = Query(1)
    query.run(records)
    assert [offset for offset, _ in query.lake.quarantine] == [3]
    assert query.lake.tables == Expected(records[:2]).tables()
    assert replay(RouteState(), records).groups == replay(RouteState(), records[:2]).groups


def test_the_longest_timeout_is_for_ever() -> None:
    """In RocketMQ the sum overflows, and the broker is gone with the next scan."""
    query = Query(1)
    records = written(
        [(0, make.register(heartbeat_timeout_millis=2**63 - 1)), (10**9, make.heartbeat()), (10**9, make.clock())]
    )
    for record in records:
        query.run([record])
    assert ("b", "c", "a0:1") in query.lake.tables["brokerLiveTable"]
    assert query.lake.quarantine == []


def test_the_least_timeout_is_over_at_once() -> None:
    query = Query(1)
    for record in written([(0, make.register(heartbeat_timeout_millis=-(2**63))), (2, make.clock())]):
        query.run([record])
    assert query.lake.tables["brokerLiveTable"] == {}
    (expired,) = {row["eventTime"] for row in query.lake.changes if row["command"] == "BROKER_EXPIRED"}
    (registered,) = {row["eventTime"] for row in query.lake.changes if row["command"] == "REGISTER_BROKER"}
    assert expired > registered

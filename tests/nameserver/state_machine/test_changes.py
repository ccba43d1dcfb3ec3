# SPDX-License-Identifier: Apache-2.0
"""Which rows count as changed: of brokerLiveTable all but those that only a heartbeat moved; of topics those that differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dev.support import events
from nameserver.state_machine.changes import LIVENESS_COLUMNS, row_changes, topic_changes
from nameserver.state_machine.rows import rows_of
from nameserver.state_machine.state import At, BrokerGroup, HeardChannel, LiveInfo, RouteState, TopicTable
from nameserver.state_machine.step import apply, step
from schemas.broker import DataVersion, QueueRow
from schemas.events import AnyEvent
from schemas.tables import BROKER_LIVE_TABLE

INFO = LiveInfo(1, 2, 3, 4, DataVersion(5, 6, 7), "ha:1", "digest", {"g": HeardChannel("c", 8)})
OTHER: dict[str, Any] = {
    "last_update_ms": 9,
    "last_update_offset": 9,
    "heartbeat_timeout_ms": 9,
    "expire_ms": 9,
    "data_version": DataVersion(5, 6, 9),
    "ha_server_addr": None,
    "topic_config_digest": None,
    "channels": {},
}


def group(**live: LiveInfo) -> BrokerGroup:
    return BrokerGroup("b", live={("c", addr): info for addr, info in live.items()})


@pytest.mark.parametrize("field", LiveInfo.__struct_fields__)
def test_a_member_has_changed_if_a_column_has_that_no_heartbeat_moves(field: str) -> None:
    before, after = group(a=INFO, z=INFO), group(a=msgspec.structs.replace(INFO, **{field: OTHER[field]}), z=INFO)
    (was, now) = (rows_of(BROKER_LIVE_TABLE, one)["b", "c", "a"] for one in (before, after))
    columns = {name for name, old, new in zip(BROKER_LIVE_TABLE.value_columns, was, now, strict=True) if old != new}
    assert columns
    expected = [(("b", "c", "a"), was, now)] if columns - LIVENESS_COLUMNS else []
    assert [change[1:] for change in row_changes(before, after)] == expected


def test_members_that_came_and_went_are_listed_by_their_keys() -> None:
    changes = list(row_changes(group(c=INFO, k=INFO, a=INFO), group(b=INFO, k=INFO)))
    assert [(change.key[2], change.before is None, change.after is None) for change in changes] == [
        ("a", False, True),
        ("b", True, False),
        ("c", False, True),
    ]


V2 = DataVersion(0, 2, 2)
OTHER_ROW = QueueRow(1, 1, 6, 0)


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (events.register(table={**events.topics("T", "U"), "A": OTHER_ROW}, version=V2), ["A"]),
        (events.register(table={"U": OTHER_ROW, "T": OTHER_ROW}, version=V2), ["T", "U"]),
        (events.register(table=events.topics("T", "A"), version=V2, delete_absent_topics=True), ["A", "U"]),
        (events.register(table=events.topics("T", "U", "A")), ["A"]),
        (events.delete_topic("U"), ["U"]),
        (events.register_topic("T", OTHER_ROW), ["T"]),
        (events.register_topic("A"), ["A"]),
    ],
    ids=["one added", "all replaced", "one for another", "one that was missing", "deleted", "put", "put anew"],
)
def test_a_table_remembers_the_topics_that_a_rule_changed(event: AnyEvent, changed: list[str]) -> None:
    state = RouteState()
    apply(state, step(state, events.register(), At(0, 1)))
    (change,) = step(state, event, At(1, 2)).changes
    before, after = change.before, change.after
    assert isinstance(before, BrokerGroup)
    assert isinstance(after, BrokerGroup)
    known = after.topics.changed_since(before.topics)
    assert known is not None
    assert sorted(known) == changed
    forgetful = msgspec.structs.replace(after, topics=TopicTable(after.topics.rows))
    assert topic_changes(before, after) == topic_changes(before, forgetful)


def test_topics_are_compared_with_a_table_from_longer_ago() -> None:
    first = group()
    second = msgspec.structs.replace(first, topics=TopicTable(events.topics("T", "U")))
    third = msgspec.structs.replace(second, topics=second.topics.changed({"T": OTHER_ROW}))
    fourth = msgspec.structs.replace(third, topics=third.topics.changed(events.topics("T", "A"), ["U"]))
    assert fourth.topics.changed_since(second.topics) is None
    changes = topic_changes(second, fourth)
    assert changes is not None
    assert changes.topics == ["A", "U"]

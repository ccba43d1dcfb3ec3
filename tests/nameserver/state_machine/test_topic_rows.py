# SPDX-License-Identifier: Apache-2.0
"""Topic changes by columns are those that are found row by row: history, operations, whatever the names, however cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dev.support import events as make
from dev.support.generated_logs import written
from dev.support.microbatches import Query
from dev.support.naive import all_changes_of
from lake.write.arrow import CHANGE_SCHEMA, Cause, ChangeRows, NetChanges, operation_schema, operations
from lake.write.batch import Batch
from lake.write.hash_chain import blocks
from lake.write.topic_rows import TopicPart, TopicParts
from nameserver.state_machine.changes import RowChange, topic_changes
from nameserver.state_machine.state import At, BrokerGroup, TopicTable, each_row
from nameserver.state_machine.step import GroupChange
from schemas.broker import QueueRow
from schemas.tables import TOPIC_QUEUE_TABLE

Tables = dict[str, QueueRow]

ROWS = (QueueRow(8, 8, 6, 0), QueueRow(4, 8, 6, 0), QueueRow(0, 0, 0, 0), QueueRow(-1, 2**31 - 1, 4, 1))
ODD = ('a"', '",', "\\", '\\"', "\n", "\x00", "\x7f", "ü☃𝔘", "", "\u2028", "'", "T", "U", "%RETRY%g", "a/b")
names = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
tables: st.SearchStrategy[Tables] = st.dictionaries(names, st.sampled_from(ROWS), max_size=6)
steps = st.lists(st.tuples(st.sampled_from(("b", 'o"dd\\', "ü")), tables), min_size=1, max_size=8)


def told(history: list[tuple[str, Tables]], rows_per_part: int) -> tuple[list[TopicPart], list[RowChange], ChangeRows]:
    """The same steps of some groups both ways."""
    payloads: list[bytes] = []
    collected, changes, rows = TopicParts(payloads.append, rows_per_part), list[RowChange](), ChangeRows()
    start: dict[str, BrokerGroup] = {}
    now: dict[str, BrokerGroup] = {}
    for offset, (name, table) in enumerate(history):
        before = now.get(name) or BrokerGroup(name)
        after = now[name] = BrokerGroup(name, topics=TopicTable(table))
        start.setdefault(name, before)
        cause = Cause(offset, offset * 7, "REGISTER_BROKER", None if offset % 3 else '{"gateway":"g"}')
        moved = topic_changes(before, after)
        if moved is not None:
            collected.add(moved, cause)
        naive = all_changes_of(GroupChange(before, after, At(offset, 0), None))
        changes += naive
        rows.add(naive, cause)
    for name in collected.changed_again():
        left = topic_changes(start[name], now[name])
        if left is not None:
            collected.add_net(left)
    collected.close()
    parts = [TopicPart(lambda payload=payload: payload) for payload in payloads]
    for part in parts:
        part.leave_net(collected.changed_again())
    return parts, changes, rows


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row.get("offset", 0), row.get("seq", 0), row["brokerName"], row["topic"]))


@given(history=steps, rows_per_part=st.sampled_from((1, 3, 1000)))
@example(history=[("b", {"T": ROWS[0]}), ("b", {}), ("b", {"T": ROWS[1]})], rows_per_part=1000)
@example(history=[("b", {"T": ROWS[0]}), ("b", {})], rows_per_part=1)
@example(history=[("b", {'a",': ROWS[0], "b": ROWS[0]})], rows_per_part=1000)
def test_by_columns_as_row_by_row(history: list[tuple[str, Tables]], rows_per_part: int) -> None:
    parts, changes, rows = told(history, rows_per_part)
    by_columns = [made for part in parts if (made := part.history()) is not None]
    assert all(made.schema == CHANGE_SCHEMA for made in by_columns)
    # To the letter and in the same order.
    assert [row for made in by_columns for row in made.to_pylist()] == rows.table().to_pylist()
    digests = [[block.digest for block in blocks(made)] for made in by_columns]
    assert [part.digests for part in parts if part.history() is not None] == digests

    whole = NetChanges()
    whole.add(changes)
    net = operations(TOPIC_QUEUE_TABLE, whole.operations().get(TOPIC_QUEUE_TABLE.name, [])).to_pylist()
    made = [made for part in parts if (made := part.operations()) is not None]
    assert all(table.schema == operation_schema(TOPIC_QUEUE_TABLE) for table in made)
    assert in_order([row for table in made for row in table.to_pylist()]) == in_order(net)
    batch = Batch(topics=parts)
    assert batch.kinds_of(TOPIC_QUEUE_TABLE) == {row["op"] for row in net}
    assert batch.has_history == bool(len(rows))


@given(topic=names)
def test_a_key_is_json(topic: str) -> None:
    (part,), _, _ = told([("b", {topic: ROWS[0]})], 10)
    history = part.history()
    assert history is not None
    assert json.loads(history["key"][0].as_py()) == {"brokerName": "b", "topic": topic}


@given(table=tables)
def test_each_row(table: Tables) -> None:
    wiped = each_row(table, lambda row: row._replace(perm=row.perm & 4))
    assert list(wiped.items()) == [(topic, row._replace(perm=row.perm & 4)) for topic, row in table.items()]


def test_no_value_is_large() -> None:
    """A batch of large registrations leaves the shard in many values: Spark hands each on as one."""
    table = {f"topic-{at:05}": ROWS[at % 3] for at in range(10_000)}
    records = written([(0, make.register(f"{at}:1", name=f"b{at}", table=table)) for at in range(12)])
    payloads = Query(1)._process(records)
    assert max(len(payload) for _, payload in payloads) < 1_000_000
    batch = Batch.merge(payloads)
    assert [len(rows) for rows in batch.operations_of(TOPIC_QUEUE_TABLE)] == [50_000, 50_000, 20_000]


def test_digests_of_a_large_registration_are_those_of_its_rows() -> None:
    """Of so many rows that they are made by columns, with names of other lengths and letters."""
    for odd in ("", "ü☃", "\\"):
        table = {f"topic-{'x' * (at % 40)}{odd}-{at}": ROWS[at % 3] for at in range(300)}
        parts, _, _ = told([("b", table), ('o"dd\\', table), ("b", {})], 1000)
        digests = [block.digest for part in parts if (made := part.history()) is not None for block in blocks(made)]
        assert len(digests) == 3
        assert [digest for part in parts for digest in part.digests] == digests

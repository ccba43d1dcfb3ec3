# SPDX-License-Identifier: Apache-2.0
"""Topic changes by columns are those that are found row by row: history and digests, whatever the names, however cut."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st

from dev.support import events as make
from dev.support.generated_logs import written
from dev.support.microbatches import Query
from dev.support.naive import all_changes_of
from lake.delta.types import arrow_schema
from lake.write.arrow import CHANGE_SCHEMA, Cause, ChangeRows
from lake.write.batch import Batch
from lake.write.hash_chain import blocks, in_blocks
from lake.write.shard_files import HistoryFile
from lake.write.topic_changes import TopicParts
from nameserver.state_machine.changes import topic_changes
from nameserver.state_machine.state import At, BrokerGroup, TopicTable, each_row
from nameserver.state_machine.step import GroupChange
from schemas.broker import QueueRow
from schemas.tables import ROUTE_CHANGE_TABLE

Tables = dict[str, QueueRow]

ROWS = (QueueRow(8, 8, 6, 0), QueueRow(4, 8, 6, 0), QueueRow(0, 0, 0, 0), QueueRow(-1, 2**31 - 1, 4, 1))
ODD = ('a"', '",', "\\", '\\"', "\n", "\x00", "\x7f", "ü☃𝔘", "", "\u2028", "'", "T", "U", "%RETRY%g", "a/b")
names = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
tables: st.SearchStrategy[Tables] = st.dictionaries(names, st.sampled_from(ROWS), max_size=6)
steps = st.lists(st.tuples(st.sampled_from(("b", 'o"dd\\', "ü")), tables), min_size=1, max_size=8)


def told(history: list[tuple[str, Tables]], rows_per_part: int) -> tuple[list[pa.Table], ChangeRows]:
    """The same steps of some groups both ways: parts, and rows one by one."""
    parts: list[pa.Table] = []
    file = HistoryFile(Path("/nonexistent"), 1)  # for parts that are larger
    collected, rows = TopicParts(parts.append, file, rows_per_part), ChangeRows()
    now: dict[str, BrokerGroup] = {}
    for offset, (name, table) in enumerate(history):
        before = now.get(name) or BrokerGroup(name)
        after = now[name] = BrokerGroup(name, topics=TopicTable(table))
        cause = Cause(offset, offset * 7, "REGISTER_BROKER", None if offset % 3 else '{"gateway":"g"}')
        moved = topic_changes(before, after)
        if moved is not None:
            collected.add(moved, cause)
        rows.add(all_changes_of(GroupChange(before, after, At(offset, 0), None)), cause)
    collected.close()
    return parts, rows


@given(history=steps, rows_per_part=st.sampled_from((1, 3, 1000)))
@example(history=[("b", {"T": ROWS[0]}), ("b", {}), ("b", {"T": ROWS[1]})], rows_per_part=1000)
@example(history=[("b", {"T": ROWS[0]}), ("b", {})], rows_per_part=1)
@example(history=[("b", {'a",': ROWS[0], "b": ROWS[0]})], rows_per_part=1000)
def test_by_columns_as_row_by_row(history: list[tuple[str, Tables]], rows_per_part: int) -> None:
    parts, rows = told(history, rows_per_part)
    assert all(made.schema == CHANGE_SCHEMA for made in parts)
    # To the letter and in the same order.
    assert [row for made in parts for row in made.to_pylist()] == rows.table().to_pylist()
    # Parts are cut between blocks.
    assert [block.digest for made in parts for block in blocks(made)] == [
        block.digest for block in blocks(rows.table())
    ]


@given(topic=names)
def test_a_key_is_json(topic: str) -> None:
    (history,), _ = told([("b", {topic: ROWS[0]})], 10)
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
    assert sum(written.file.rows for written in batch.histories) == 120_000
    batch.close()


def test_digests_of_a_file_are_those_of_its_rows(tmp_path: Path) -> None:
    """With names of other lengths and letters, and two causes of which one changes two groups."""
    file = HistoryFile(tmp_path, 1)
    parts = TopicParts(lambda part: None, file)
    for at, (name, odd) in enumerate((("b", ""), ('o"dd\\', "ü☃"), ("b", "\\"))):
        table = {f"topic-{'x' * (number % 40)}{odd}-{number}": ROWS[number % 3] for number in range(300)}
        changes = topic_changes(BrokerGroup(name), BrokerGroup(name, topics=TopicTable(table)))
        assert changes is not None
        parts.add(changes, Cause(at // 2, 7, "REGISTER_BROKER", None))
    parts.close()
    written_file = file.close()
    assert written_file is not None
    rows = in_blocks(pq.read_table(written_file.file.path).cast(arrow_schema(ROUTE_CHANGE_TABLE)))
    assert written_file.digests == [block.digest for block in blocks(rows)]

# SPDX-License-Identifier: Apache-2.0
"""topicQueueTable's columns as rows, for any numbers that fit the columns."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from lake.view_loader import topic_deltas

int_st = st.sampled_from((0, 1, 6, 8)) | st.integers(-(2**31), 2**31 - 1)
row_st = st.tuples(st.sampled_from("abc"), st.sampled_from("tuv"), int_st, int_st, int_st, int_st)
_LOW, _HIGH = -(2**31), 2**31 - 1


@given(rows=st.lists(row_st, max_size=30), cut=st.integers(0, 30))
@example(rows=[("a", "t", _LOW, _LOW, _LOW, _LOW), ("b", "t", _HIGH, _HIGH, _HIGH, _HIGH)], cut=1)
@example(rows=[("a", "t", _HIGH, _LOW, 6, 0), ("b", "t", _LOW, _HIGH, _HIGH, _LOW), ("c", "u", 8, 8, 6, 0)], cut=2)
def test_rows_have_their_own_numbers(rows: list[tuple[str, str, int, int, int, int]], cut: int) -> None:
    names = ("brokerName", "topic", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    kinds = (pa.string(), pa.string(), *[pa.int32()] * 4)

    def table(part: list[tuple[str, str, int, int, int, int]]) -> pa.Table:
        columns = list(zip(*part, strict=True)) or [()] * len(names)
        return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names)

    found = {
        (broker, topic): row
        for topic, brokers, values in topic_deltas(pa.concat_tables([table(rows[:cut]), table(rows[cut:])]))
        for broker, row in zip(brokers, values, strict=True)
    }
    assert found == {(broker, topic): tuple(numbers) for broker, topic, *numbers in rows}

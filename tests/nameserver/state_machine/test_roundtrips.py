# SPDX-License-Identifier: Apache-2.0
"""State to rows and back, state to bytes and back: nothing is lost on the way to the tables or the state store."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dev.support.any_event import any_events
from dev.support.expected import Expected
from dev.support.generated_logs import batches, cuts, logs
from eventlog.base import LogRecord
from lake.view_loader import changes_from
from lake.write.arrow import INSERT, from_ipc, operations, to_ipc
from nameserver.state_machine.codec import (
    Shard,
    decode_shard,
    decode_topics,
    encode_shard,
    encode_topics,
)
from nameserver.state_machine.replay import replay
from nameserver.state_machine.rows import kv_rows, rows_of
from nameserver.state_machine.state import RouteState, TopicTable
from nameserver.view.conversions import whole_state_of
from nameserver.view.snapshot import RouteView
from schemas.route_commit import NO_COMMIT
from schemas.tables import KV_CONFIG_TABLE, Table
from tests.nameserver.state_machine.test_poison import log_of

states: st.SearchStrategy[RouteState] = st.one_of(
    logs.map(lambda records: Expected(records).state),
    st.lists(any_events, max_size=6).map(lambda events: Expected(log_of(events)).state),
)


@given(state=states)
def test_arrow_and_back(state: RouteState) -> None:
    """Through the Arrow tables that go to the writer, and the view that a reader of the lake makes of them."""

    def read(table: Table) -> pa.Table:
        if table is KV_CONFIG_TABLE:
            rows = [*kv_rows(state.kv).items()]
        else:
            rows = [row for group in state.groups.values() for row in rows_of(table, group).items()]
        return from_ipc(to_ipc(operations(table, [(key, tuple(values), INSERT) for key, values in rows])))

    again = whole_state_of(RouteView.empty().apply(changes_from(NO_COMMIT, read)))
    assert again.groups == {name: group for name, group in state.groups.items() if not group.empty}
    assert again.kv == state.kv


@given(state=states, now_ms=st.integers(0, 2**60))
def test_shard_codec(state: RouteState, now_ms: int) -> None:
    shard = Shard(replace(state, now_ms=now_ms, preserved_ms=9, watermark_ms=7), "run")
    again = decode_shard(encode_shard(shard))
    for name, group in state.groups.items():
        topics = TopicTable(decode_topics(encode_topics(group.topics.rows)))
        again.state.groups[name] = replace(again.state.groups[name], topics=topics)
    assert again == shard


@given(records=logs, sizes=cuts)
def test_replay_in_pieces(records: list[LogRecord], sizes: list[int]) -> None:
    """Recovery may begin anywhere."""
    state = RouteState()
    for piece in batches(records, sizes):
        state = replay(state, piece)
    assert state == replay(RouteState(), records) == Expected(records).state

# SPDX-License-Identifier: Apache-2.0
"""Every reader of an event log, side by side: live view, fold, replay and audit have one state at each offset."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from api.live_view.live_state import LiveState
from dev.support.expected import Expected, tables_of
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import batches
from dev.support.microbatches import Query
from dev.support.view_tables import as_tables, full_scan
from eventlog.base import LogRecord
from lake.write.shards import shard_keys
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import RouteState
from nameserver.view.snapshot import RouteView
from ops.verify.causes import Causes
from ops.verify.replay import Base, Part
from schemas.route_commit import NO_COMMIT, to_ms


def agreed_states(records: Sequence[LogRecord], sizes: Sequence[int], shards: int) -> list[RouteState]:
    """The state after each record, by the state machine alone, once every reader was seen to have the same.

    Args:
        records: a whole event log.
        sizes: of the fold's micro-batches, repeated.
        shards: of the fold and of the audit.
    """
    states: list[RouteState] = []
    state = RouteState()
    head = LiveState(RouteView.empty())
    for record in records:
        state = Expected([record], state).state
        states.append(replace(state, groups=dict(state.groups)))
        head.take(record)
        view = head.publish(NO_COMMIT)
        assert as_tables(view) == full_scan(state), f"live view at {record.offset}"
        assert to_ms(view.watermark) == state.watermark_ms
    assert replay(RouteState(), records) == state
    query, ends = Query(shards), []
    for batch in batches(records, sizes):
        query.run(batch)
        ends.append(batch[-1].offset)
        assert query.lake.tables == tables_of(states[ends[-1] - 1]), f"tables at {ends[-1]}"
        assert query.lake.watermark_ms == states[ends[-1] - 1].watermark_ms
    for end in {ends[0], ends[-1]}:
        assert _audited(records, end, shards) == states[end - 1].groups, f"audit at {end}"
    return states


def _audited(records: Sequence[LogRecord], end: int, shards: int) -> dict[str, object]:
    commit = msgspec.structs.replace(NO_COMMIT, log_offset=end, liveness_offset=end)
    groups: dict[str, object] = {}
    for shard in shard_keys(shards):
        part = Part(Base(NO_COMMIT, None), commit, (shard, shards), Causes([], []))
        groups |= part.replay(FixedLog(records), lambda offset, last: None).groups
    return groups

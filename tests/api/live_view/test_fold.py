# SPDX-License-Identifier: Apache-2.0
"""LiveState: wherever it begins, the view at the head is the fold of the log up to there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from api.live_view.live_state import LiveState
from dev.support.expected import Expected
from dev.support.feed import view_of
from dev.support.generated_logs import jumping_logs, logs
from dev.support.view_tables import TableChanges, as_tables, full_scan
from eventlog.base import LogRecord
from nameserver.state_machine.replay import read_event, replay
from nameserver.state_machine.state import RouteState
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView
from schemas.errors import EventDecodeError
from schemas.events import BrokerHeartbeat, Clock, Resume
from schemas.route_commit import NO_COMMIT, RouteCommit


def view_at(records: Sequence[LogRecord]) -> RouteView:
    """What a follower shows of the tables after these records."""
    state = replay(RouteState(), records)
    tables: TableChanges = {name: dict(rows) for name, rows in full_scan(state).items()}
    view = view_of(tables)
    offset = records[-1].offset if records else -1
    moment = datetime.fromtimestamp(state.now_ms / 1000, UTC)
    preserved = datetime.fromtimestamp(state.preserved_ms / 1000, UTC) if state.preserved_ms else None
    commit = RouteCommit(
        1,
        offset,
        offset,
        moment,
        moment,
        moment,
        rules_version=STATE_MACHINE_VERSION,
        preserve_time=preserved,
    )
    return view.apply(Changes(commit))


def is_command(record: LogRecord, now_ms: int) -> bool:
    """Whether a client may wait for the outcome. A RESUME that came in time is no command."""
    try:
        event = read_event(record)
    except EventDecodeError:
        return False
    if isinstance(event, Resume):
        return event.after_ms is None or now_ms > event.after_ms
    return not isinstance(event, BrokerHeartbeat | Clock)


@given(logs | jumping_logs, st.integers(0, 40), st.sets(st.integers(0, 40)))
def test_the_head_is_the_fold_of_the_log(records: list[LogRecord], begin: int, published: set[int]) -> None:
    head = LiveState(view_at(records[:begin]) if begin else RouteView.empty())
    outcomes = []
    for record in records[begin:]:
        outcomes.append(head.take(record))
        if record.offset in published:
            view = head.publish(NO_COMMIT)
            assert view.log_offset == record.offset
            assert as_tables(view) == full_scan(replay(RouteState(), records[: record.offset]))
    assert as_tables(head.publish(NO_COMMIT)) == full_scan(replay(RouteState(), records))
    expected = Expected(records).outcomes
    found = {one.offset: (one.outcome, one.reason) for one in outcomes if one is not None}
    said = {offset: (outcome, reason) for offset, _, outcome, reason, _ in expected if offset > begin}
    assert said.items() <= found.items()
    times_ms = accumulate((record.event_time_ms for record in records), max)
    commands = {record.offset for record, now_ms in zip(records, times_ms, strict=True) if is_command(record, now_ms)}
    assert set(found) == commands & {record.offset for record in records[begin:]}

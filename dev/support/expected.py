# SPDX-License-Identifier: Apache-2.0
"""Expected contents of the tables after a log: computed from the state machine alone, record by record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dev.support.microbatches import Tables, ordered
from dev.support.naive import all_changes_of
from eventlog.base import LogRecord, in_time
from lake.write.arrow import Cause, ChangeRows
from nameserver.state_machine.changes import command_name, command_of, is_audited
from nameserver.state_machine.rows import kv_rows, rows_of
from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import GroupChange, KvChange, apply, step
from schemas.errors import EventDecodeError
from schemas.events import AnyEvent, decode, routing_key
from schemas.tables import KV_CONFIG_TABLE, STATE_TABLES


class Expected:
    """The pure fold over a log.

    Attributes:
        state: after the last record.
        outcomes: (offset, command, outcome, reason, result as JSON) of what is audited.
        unreadable: offsets that must be in quarantine.
    """

    def __init__(self, records: Iterable[LogRecord], state: RouteState | None = None) -> None:
        self.state = state or RouteState()
        self.outcomes: list[tuple[Any, ...]] = []
        self.unreadable: list[tuple[int, str | None]] = []
        self._changes: list[dict[str, Any]] = []
        for before_ms, record in in_time(records, self.state.now_ms):
            self.state.now_ms = before_ms
            try:
                event = decode(record.payload)
                if routing_key(event) != record.key or record.key == "b:":
                    raise EventDecodeError
            except EventDecodeError:
                self.unreadable.append((record.offset, record.key))
                self.state.now_ms = record.event_time_ms
                continue
            self._fold(event, At(record.offset, record.event_time_ms))

    def tables(self) -> Tables:
        """The state tables."""
        return tables_of(self.state)

    def history(self) -> list[tuple[Any, ...]]:
        """Rows of routeChangeTable about changed rows, in the order of `microbatches.ordered`."""
        return ordered(self._changes)

    def _fold(self, event: AnyEvent, at: At) -> None:
        done = step(self.state, event, at)
        apply(self.state, done)
        for change in done.changes:
            self._note(change)
        verdict, reason, result = done.outcome.verdict, done.outcome.reason, done.outcome.result
        if is_audited(event, verdict):
            self.outcomes.append((at.offset, command_name(event), verdict, reason, json.dumps(result)))

    def _note(self, change: GroupChange | KvChange) -> None:
        rows = ChangeRows()
        actor = None if change.event is None else _compact(change.event.actor)
        rows.add(all_changes_of(change), Cause(change.at.offset, change.at.now_ms, command_of(change), actor))
        self._changes += rows.table().to_pylist()


def _compact(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def tables_of(state: RouteState) -> Tables:
    """The state tables of a state."""
    tables: Tables = {}
    for table in STATE_TABLES:
        if table is KV_CONFIG_TABLE:
            tables[table.name] = dict(kv_rows(state.kv))
        else:
            tables[table.name] = {
                key: tuple(values) for group in state.groups.values() for key, values in rows_of(table, group).items()
            }
    return tables

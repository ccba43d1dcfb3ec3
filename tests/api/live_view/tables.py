# SPDX-License-Identifier: Apache-2.0
"""The tables of a live view, without Delta: the fold's shard, the writer's state, and the follower's steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dev.support.memory_files import MemoryShard, changed_topics
from eventlog.base import LogRecord
from lake.delta.reader import GONE
from lake.view_loader import changes_from
from lake.write.arrow import DELETE, LIVENESS, OP, operation_schema
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView
from pipelines.blocks import Record
from schemas.route_commit import RouteCommit
from schemas.tables import BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE, Table


class Epoch(NamedTuple):
    view: RouteView
    changes: Changes | None


class Tables:
    """Folds batches into epochs, as a follower shows them."""

    def __init__(self) -> None:
        self.view = RouteView.empty()
        self._shard = MemoryShard()
        self._live: dict[tuple[str, ...], dict[str, Any]] = {}
        self._changed: set[tuple[str, ...]] = set()
        self._exact = -1

    def fold(self, records: Sequence[LogRecord], *, flush: bool = True, always: bool = False) -> Epoch | None:
        """One batch: an epoch if it was more than heartbeats, or these are due (``flush``), or ``always``."""
        batch = self._shard.batch(Record(*record) for record in records)
        for part in batch.live:
            for row in part.to_pylist():
                key = tuple(row[name] for name in BROKER_LIVE_TABLE.key)
                if row[OP] != LIVENESS:
                    self._changed.add(key)
                self._live[key] = row
        if batch.is_empty and not (flush and self._live) and not always:
            return None
        written = list(self._live) if flush else [key for key in self._live if key in self._changed]
        live = [self._live.pop(key) for key in written]
        self._changed.clear()
        offset = records[-1].offset
        if not self._live:
            self._exact = offset
        moment = datetime.fromtimestamp(records[-1].event_time_ms / 1000, UTC)
        commit = RouteCommit(
            self.view.epoch + 1, offset, self._exact, moment, moment, moment, rules_version=STATE_MACHINE_VERSION
        )
        live_rows = pa.Table.from_pylist(live, schema=operation_schema(BROKER_LIVE_TABLE))
        parts = {**batch.operations, BROKER_LIVE_TABLE.name: [live_rows]}

        def read(table: Table) -> pa.Table | None:
            if table is TOPIC_QUEUE_TABLE:
                return changed_topics(batch)
            found = [part for part in parts.get(table.name, ()) if len(part)]
            if not found:
                return None
            rows = pa.concat_tables(found)
            return rows.drop_columns([OP]).append_column(GONE, pc.equal(rows[OP], DELETE))

        return self.step(changes_from(commit, read))

    def step(self, changes: Changes) -> Epoch:
        """The follower's step."""
        self.view = self.view.apply(changes)
        return Epoch(self.view, changes)

# SPDX-License-Identifier: Apache-2.0
"""A small writer of lakes, for tests of the reading side: state in dicts, one Delta commit per changed table and epoch.

It writes what `lake.write` promises to its readers and nothing more: append when every changed row is new, MERGE
otherwise, routeCommitTable last. `LakeWriter.state` is the oracle: what a full scan of the tables must give.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lake.delta.types import arrow_schema
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from schemas.tables import ALL_TABLES, ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE, STATE_TABLES, Table

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Event time of epoch 0 in lakes written here; each epoch is a second later unless told otherwise."""

_BY_NAME = {table.name: table for table in ALL_TABLES}

Key = tuple[Any, ...]
Row = dict[str, Any]
"""One table row, column name to value; maps as dicts."""


def arrow_rows(table: Table, rows: list[Row], *, nullable: bool = False) -> pa.Table:
    """Rows as the writer hands them to Delta; absent columns are null, which a deletion needs for every value."""
    schema = arrow_schema(table)
    if nullable:
        schema = pa.schema([field.with_nullable(True) for field in schema])
    columns = [
        pa.array([_cell(row.get(name)) for row in rows], type=schema.field(name).type) for name in table.column_names
    ]
    return pa.table(columns, schema=schema)


def _cell(value: object) -> object:
    return list(value.items()) if isinstance(value, dict) else value


@dataclass
class LakeWriter:
    """Writes epochs.

    Attributes:
        path: The lake directory.
        state: Table name to {key: row}.
        epoch: Last one written.
        commits: The routeCommitTable rows written so far.
    """

    path: Path
    state: dict[str, dict[Key, Row]] = field(default_factory=dict)
    epoch: int = 0
    log_offset: int = 0
    commits: list[Row] = field(default_factory=list)
    query_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        """Create whatever table is missing."""
        for table in ALL_TABLES:
            self.state.setdefault(table.name, {})
            folder = self.path / table.name
            if not DeltaTable.is_deltatable(str(folder)):
                configuration = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "1000000"}
                if table in STATE_TABLES:
                    configuration["delta.enableChangeDataFeed"] = "true"
                DeltaTable.create(
                    str(folder),
                    pa.schema(arrow_schema(table)),
                    partition_by=list(table.partition_by) or None,
                    configuration=configuration,
                )
        self._tables = {table.name: DeltaTable(str(self.path / table.name)) for table in ALL_TABLES}

    def table(self, name: str) -> DeltaTable:
        """The writer's own handle, for maintenance in tests."""
        return self._tables[name]

    def commit(
        self,
        changes: dict[str, dict[Key, Row | None]],
        *,
        log_offset: int | None = None,
        event_time: datetime | None = None,
        outcomes: list[dict[str, Any]] | None = None,
        history: list[Row] | None = None,
        only_tables: bool = False,
    ) -> int:
        """Write one epoch.

        Args:
            changes: Table name to {key: value columns, or None to remove the row}.
            log_offset: Offset of the epoch; default: one more than the last.
            event_time: Event time of the epoch; default: START plus a second per epoch.
            outcomes: Outcomes as schemas.tables describes them.
            history: Rows for routeChangeTable, without epoch.
            only_tables: Stop before routeCommitTable, as a writer killed there does.

        Returns:
            The epoch.
        """
        for name, rows in changes.items():
            self._write(_BY_NAME[name], rows)
        epoch = self.epoch + 1
        if history:
            self._append(ROUTE_CHANGE_TABLE, [{"epoch": epoch, **row} for row in history])
        if only_tables:
            return self.epoch
        self.epoch = epoch
        self.log_offset = self.log_offset + 1 if log_offset is None else log_offset
        event_time = START + timedelta(seconds=epoch) if event_time is None else event_time
        row = {
            "epoch": epoch,
            "logOffset": self.log_offset,
            "livenessOffset": self.log_offset,
            "eventTime": event_time,
            "watermark": event_time - timedelta(seconds=1),
            "commitTime": event_time + timedelta(milliseconds=500),
            "versions": {table.name: self._tables[table.name].version() for table in ALL_TABLES[:-1]},
            "outcomes": json.dumps(outcomes or []),
            "queryId": self.query_id,
            "batchId": epoch,
            "resumeTime": None,
            "rulesVersion": STATE_MACHINE_VERSION,
            "preserveTime": None,
            "chain": "",
        }
        self._append(ROUTE_COMMIT_TABLE, [row])
        self.commits.append(row)
        return epoch

    def full_scan(self, name: str) -> dict[Key, Row]:
        """A state table as it stands: {key: row with all columns}."""
        return dict(self.state[name])

    def _append(self, table: Table, rows: list[Row]) -> None:
        write_deltalake(self._tables[table.name], arrow_rows(table, rows), mode="append")

    def _write(self, table: Table, changes: dict[Key, Row | None]) -> None:
        state = self.state[table.name]
        source: list[Row] = []
        removed: list[bool] = []
        inserts_only = True
        for key, values in changes.items():
            before = state.get(key)
            if values is None:
                if before is None:
                    continue
                del state[key]
            else:
                row = {**dict.fromkeys(table.column_names), **dict(zip(table.key, key, strict=True)), **values}
                if before == row:
                    continue
                state[key] = row
            inserts_only = inserts_only and before is None
            source.append(dict(zip(table.key, key, strict=True)) if values is None else state[key])
            removed.append(values is None)
        if not source:
            return
        if inserts_only:
            self._append(table, source)
            return
        data = arrow_rows(table, source, nullable=True).append_column("gone", pa.array(removed))
        terms = [f't."{name}" = s."{name}"' for name in table.key]
        for name in table.partition_by:
            quoted = sorted("'" + str(row[name]).replace("'", "''") + "'" for row in source)
            terms.append(f't."{name}" IN ({", ".join(quoted)})')
        same = " AND ".join(terms)
        merge = self._tables[table.name].merge(data, same, source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.gone")
        if table.value_columns:
            merge = merge.when_matched_update({f'"{name}"': f's."{name}"' for name in table.value_columns})
        merge.when_not_matched_insert({f'"{name}"': f's."{name}"' for name in table.column_names}).execute()

# SPDX-License-Identifier: Apache-2.0
"""Table changes as the change data feed gives them, without a lake: for tests of the steps from view to view."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from api.view import loader
from api.view.snapshot import RouteView
from benchmarks.harness.lake_writer import arrow_rows
from lake.commits import RouteCommit
from lake.deltalog import GONE
from schemas.tables import STATE_TABLES, Table
from tests.support.view_tables import Rows, TableChanges

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def commit_of(epoch: int) -> RouteCommit:
    """A commit that is only a number."""
    return RouteCommit(epoch, epoch, epoch, NOW, NOW, NOW, {})


def apply(view: RouteView, changes: TableChanges) -> RouteView:
    """The view after one epoch with these changes."""

    def read(spec: Table) -> pa.Table | None:
        rows = changes.get(spec.name)
        if not rows:
            return None
        listed = [dict(zip(spec.key, key, strict=True)) if row is None else row for key, row in rows.items()]
        table = arrow_rows(spec, listed, nullable=True)
        return table.append_column(GONE, pa.array([row is None for row in rows.values()]))

    return view.apply(loader.changes_from(commit_of(view.epoch + 1), read))


def view_of(tables: TableChanges) -> RouteView:
    """A view with these rows."""
    return apply(RouteView.empty(), tables)


def step(state: dict[str, Rows], changes: TableChanges) -> dict[str, Rows]:
    """What the tables hold after these changes."""
    after = {spec.name: dict(state.get(spec.name, {})) for spec in STATE_TABLES}
    for name, rows in changes.items():
        for key, row in rows.items():
            if row is None:
                after[name].pop(key, None)
            else:
                after[name][key] = row
    return after

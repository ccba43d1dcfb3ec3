# SPDX-License-Identifier: Apache-2.0
"""Table changes as the change data feed gives them, without a lake: for tests of the steps from view to view."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from dev.benchmarks.harness.lake_writer import LakeWriter, arrow_rows
from dev.support.view_tables import Rows, TableChanges, complete
from lake import view_loader
from lake.delta.reader import GONE
from nameserver.view.snapshot import RouteView
from schemas.route_commit import RouteCommit
from schemas.tables import STATE_TABLES, Table

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

    return view.apply(view_loader.changes_from(commit_of(view.epoch + 1), read))


def view_of(tables: TableChanges) -> RouteView:
    """A view with these rows."""
    return apply(RouteView.empty(), tables)


def step(state: dict[str, Rows], changes: TableChanges) -> dict[str, Rows]:
    """Return the contents of the tables after these changes."""
    after = {spec.name: dict(state.get(spec.name, {})) for spec in STATE_TABLES}
    for name, rows in changes.items():
        for key, row in rows.items():
            if row is None:
                after[name].pop(key, None)
            else:
                after[name][key] = row
    return after


def queue(perm: int = 6, flag: int = 0, nums: int = 8) -> dict[str, Any]:
    return {"readQueueNums": nums, "writeQueueNums": nums, "perm": perm, "topicSysFlag": flag}


def group(cluster: str = "c1", *, acting: bool = False, zone: str | None = None, **addrs: str) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "brokerAddrs": {int(key[1:]): addr for key, addr in addrs.items()},
        "zoneName": zone,
        "enableActingMaster": acting,
    }


def complete_rows(tables: TableChanges) -> TableChanges:
    """Absent columns are null."""
    by_name = {spec.name: spec for spec in STATE_TABLES}
    return complete(
        {
            name: {
                key: None if row is None else dict.fromkeys(by_name[name].value_columns) | row
                for key, row in rows.items()
            }
            for name, rows in tables.items()
        }
    )


MAPPING = {
    "bname": "broker-a",
    "currIdMap": {"0": 0, "1": 3},
    "dirty": False,
    "epoch": 7,
    "scope": "__global__",
    "topic": "orders",
    "totalQueues": 4,
}

EVERY_FIELD: TableChanges = {
    "topicQueueTable": {("broker-a", "orders"): queue()},
    "brokerAddrTable": {("broker-a",): group(zone="HZ", _0="10.0.0.1:10911", _1="10.0.0.2:10911")},
    "filterServerTable": {("broker-a", "c1", "10.0.0.1:10911"): {"filterServerList": ["10.0.0.1:31000"]}},
    "topicQueueMappingInfoTable": {
        ("broker-a", "orders", "broker-a"): {"mapping": json.dumps(MAPPING), "registeredOffset": 1}
    },
    "kvConfigTable": {("ORDER_TOPIC_CONFIG", "orders"): {"value": "broker-a:8"}},
}
"""The example of reference 4.4."""


def age_log(writer: LakeWriter, name: str) -> None:
    """Check-point a table and clean its log up as if retention had passed."""
    table = writer.table(name)
    table.create_checkpoint()
    for file in (writer.path / name / "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()

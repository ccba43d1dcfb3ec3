# SPDX-License-Identifier: Apache-2.0
"""Results of the comparisons with the tables: counters for metrics and `/readyz`, and evidence of differences."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import structlog

from api.live_view.check import Comparison
from lake.delta.ddl import write_whole
from nameserver.view.snapshot import RouteView
from runtime.version import PROGRAM
from schemas.tables import Table

log = structlog.get_logger("routelake.gateway")

_MOST_REPORTS: Final = 10
_MOST_CHARS: Final = 2_000
"""Maximum number of characters shown of a value. A KV value may have 256 KiB."""

_json = msgspec.json.Encoder()


class CheckResults:
    """Counters and reports. The live view's thread writes them, and any thread may read them.

    Args:
        evidence: File for the last differences. None: no file is written.

    Attributes:
        compared: Number of epochs that were compared.
        unchecked: Number of epochs that were compared only in part, because too much had changed or the tables were
            ahead of the live view.
        differences: Number of rows that differed, by table.
        last: Last epoch that differed, in words that name no row. None if there was none.
        reports: Reports of the last such epochs.
    """

    def __init__(self, evidence: Path | None = None) -> None:
        """Start without any comparison."""
        self._evidence = evidence
        self.compared = self.unchecked = 0
        self.differences: Counter[str] = Counter()
        self.last: str | None = None
        self.reports: list[dict[str, Any]] = []

    def count(self, found: Comparison, tables: RouteView, live_view_offset: int) -> None:
        """Count a compared epoch.

        Args:
            found: Result of the comparison.
            tables: View of the epoch.
            live_view_offset: Offset that the live view has reached since.
        """
        self.compared += found.is_whole
        self.unchecked += not found.is_whole
        if not found.counts:
            return
        self.differences += found.counts
        where = f"; see {self._evidence}" if self._evidence is not None else ""
        tables_named = ", ".join(f"{count} of {table}" for table, count in found.counts.items())
        self.last = f"rows at epoch {tables.epoch} (offset {tables.log_offset}): {tables_named}{where}"
        report = _report(found, tables, live_view_offset)
        log.error(
            "tables differ from the event log; answers follow the event log",
            advice=f"run {PROGRAM} history verify",
            **{**report, "rows": report["rows"][0]},
        )
        self._keep(report)

    def _keep(self, report: dict[str, Any]) -> None:
        self.reports = [*self.reports, report][-_MOST_REPORTS:]
        if self._evidence is not None:
            try:
                write_whole(self._evidence, json.dumps({"differences": self.reports}, indent=1) + "\n")
            except OSError as error:
                log.warning("cannot write the report of differences", path=str(self._evidence), error=error.strerror)


def evidence_file(lake_dir: Path, gateway_id: str) -> Path:
    """Return the path of the file of differences in the lake's directory. Each gateway has its own file."""
    return lake_dir / f"live-view-differences-{quote(gateway_id, safe='')}.json"


def _report(found: Comparison, tables: RouteView, live_view_offset: int) -> dict[str, Any]:
    commit = tables.commit
    return {
        "timeMillis": round(time.time() * 1000),
        "epoch": commit.epoch,
        "logOffset": commit.log_offset,
        "livenessOffset": commit.liveness_offset,
        "liveViewOffset": live_view_offset,
        "rulesVersion": commit.rules_version,
        "counts": dict(found.counts),
        "rows": [
            {
                "table": one.table.name,
                "key": one.key,
                "liveView": _text(one.table, one.after),
                "tables": _text(one.table, one.before),
            }
            for one in found.examples
        ],
    }


def _text(table: Table, row: tuple[object, ...] | None) -> str:
    values = None if row is None else dict(zip(table.value_columns, row, strict=True))
    return _json.encode(values).decode(errors="replace")[:_MOST_CHARS]

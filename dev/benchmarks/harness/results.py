# SPDX-License-Identifier: Apache-2.0
"""Results of a run in dev/benchmarks/results: JSON and chart; latest.* have the newest of each bench."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from dev.benchmarks.harness.chart import draw
from dev.benchmarks.harness.report import BENCH_ORDER, Result


class Run(msgspec.Struct, rename="camel"):
    """One run of benches, or in latest.json the newest result of each bench on this machine."""

    started_at: str
    machine: dict[str, Any]
    options: dict[str, Any]
    results: list[Result]


def save(folder: Path, run: Run) -> Path:
    """Write a run as JSON and chart under its time, and bring latest.json and latest.svg up to date.

    Returns:
        The run's JSON file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    latest = folder / "latest.json"
    for name, content in ((run.started_at, run), ("latest", _merged(latest, run))):
        text = msgspec.json.format(msgspec.json.encode(content), indent=1)
        (folder / f"{name}.json").write_bytes(text + b"\n")
        (folder / f"{name}.svg").write_text(draw(content.results, content.machine), encoding="utf-8")
    return folder / f"{run.started_at}.json"


def _merged(latest: Path, run: Run) -> Run:
    """Results of earlier runs on the same machine stay until their bench is measured again."""
    try:
        before = msgspec.json.decode(latest.read_bytes(), type=Run)
    except (OSError, msgspec.MsgspecError):
        return run
    if any(before.machine.get(name) != run.machine.get(name) for name in ("cores", "processor", "memoryGib")):
        return run
    measured = {result.bench for result in run.results}
    kept = [result for result in before.results if result.bench not in measured]
    results = sorted([*kept, *run.results], key=lambda result: BENCH_ORDER.get(result.bench, len(BENCH_ORDER)))
    return Run(run.started_at, run.machine, run.options, results)


def started_now() -> str:
    """Name of a run: its time in UTC."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")

# SPDX-License-Identifier: Apache-2.0
"""Results of a run in dev/benchmarks/results: JSON and chart; latest.* have the newest of each bench."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from dev.benchmarks.harness.report import BENCH_ORDER, Figure, Result, number

_WIDTH: Final = 980
_LEFT, _RIGHT = 330, 250
_ROW: Final = 22
_BAR: Final = _WIDTH - _LEFT - _RIGHT
_TWICE: Final = 2.0
"""Right end of the scale: twice as good as the target. Longer bars are cut and have their number next to them."""
_GOOD, _MISSED, _INK, _PALE = "#2f7d5b", "#b5473c", "#1f2430", "#d8dce3"


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
        (folder / f"{name}.svg").write_text(_draw(content.results, content.machine), encoding="utf-8")
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


def _share(figure: Figure) -> float:
    """1.0 at the target, more when better."""
    if figure.value is None or not figure.target:
        return 0.0
    if figure.sense == "at least":
        return figure.value / figure.target
    return figure.target / figure.value if figure.value else _TWICE


def _draw(results: Sequence[Result], machine: dict[str, Any]) -> str:
    """The chart as SVG, by hand: for every figure with a target, how far it got towards it."""
    rows = [(result.bench, figure) for result in results for figure in result.figures if figure.target is not None]
    height = 70 + _ROW * len(rows)
    where = f"{machine.get('cores')} cores, {machine.get('processor')}, {machine.get('memoryGib')} GiB"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="15" fill="{_INK}">routelake: asked (line) and reached</text>',
        f'<text x="12" y="40" fill="{_INK}">{escape(where)}; longer is better</text>',
    ]
    for index, (bench, figure) in enumerate(rows):
        parts += _row(bench, figure, 56 + index * _ROW)
    line = _LEFT + _BAR / _TWICE
    parts.append(f'<line x1="{line}" x2="{line}" y1="50" y2="{height - 10}" stroke="{_INK}" stroke-dasharray="3 3"/>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _row(bench: str, figure: Figure, top: int) -> list[str]:
    long = max(2.0, min(_share(figure), _TWICE) / _TWICE * _BAR)
    value = "none" if figure.value is None else f"{number(figure.value)} {figure.unit}"
    goal = f"{figure.sense} {number(figure.target or 0)} {figure.unit}"
    verdict = "" if figure.reached else ", MISSED"
    colour = _GOOD if figure.reached else _MISSED
    text = top + 14
    return [
        f'<text x="{_LEFT - 8}" y="{text}" text-anchor="end" fill="{_INK}">{escape(f"{bench}: {figure.name}")}</text>',
        f'<rect x="{_LEFT}" y="{top + 3}" width="{_BAR}" height="14" fill="{_PALE}"/>',
        f'<rect x="{_LEFT}" y="{top + 3}" width="{long:.1f}" height="14" fill="{colour}"/>',
        f'<text x="{_LEFT + _BAR + 8}" y="{text}" fill="{_INK}">{escape(f"{value} ({goal}{verdict})")}</text>',
    ]

# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, kept with it as report.json, and of many runs together: `./routelake torture --sum DIR...`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dev.fault_injection.case import Case, Violation

REPORT: Final = "report.json"


@dataclass
class Figures:
    """Parameters and results of a run.

    Attributes:
        command: command that runs it again.
        about: seed, seconds of traffic, log, gateways, plants; see `dev.fault_injection.record.Record`.
        ended: reason why it did not come to its end; "" if it did.
        faults: kind -> number of faults that hit a target.
        missed: kind -> number of faults without a target.
        writes: acknowledged writes, all of which are looked for on the log.
        answers: reads with contents.
        judged: kind -> number of comparisons with the expected value.
        ends: process and exit code -> number of restarts.
        events: number of events on the log.
        epochs: number of epochs in the tables.
        rests: seconds until everything was healthy, for each rest.
        violations: rule -> number of violations.
        elapsed_s: seconds from the command to the verdict.
    """

    command: str
    about: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    answers: int = 0
    judged: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    events: int = 0
    epochs: int = 0
    rests: list[float | None] = field(default_factory=list)
    violations: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def is_good(self) -> bool:
        """Return whether the run came to its end, and no violation was found."""
        return not self.ended and not self.violations

    def write(self, folder: Path) -> None:
        """Keep them with the run."""
        (folder / REPORT).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def figures_of(case: Case, violations: Sequence[Violation], command: str) -> Figures:
    """Compute the figures of a judged run."""
    faults = case.record.faults
    return Figures(
        command,
        case.record.about,
        "",
        dict(sorted(Counter(fault.kind for fault in faults if fault.hit).items())),
        dict(sorted(Counter(fault.kind for fault in faults if not fault.hit).items())),
        len([entry for entry in case.record.entries if entry.is_write and entry.acknowledged]),
        len(case.reads),
        dict(sorted(case.judged.items())),
        {f"{name} {code}": count for (name, code), count in sorted(case.evidence.ends.items())},
        len(case.evidence.log),
        len(case.evidence.epochs),
        case.record.rests,
        dict(Counter(violation.rule for violation in violations)),
    )


def read_figures(places: Iterable[Path]) -> list[Figures]:
    """Read the figures of all runs in these folders and below them, by seed.

    Raises:
        FileNotFoundError: A folder has no run.
    """
    found = []
    for place in places:
        reports = sorted(place.rglob(REPORT))
        if not reports:
            raise FileNotFoundError(f"no {REPORT} in {place}")
        found += [Figures(**json.loads(report.read_text(encoding="utf-8"))) for report in reports]
    return sorted(found, key=lambda figures: int(figures.about.get("seed", 0)))


def counted(counts: dict[str, int]) -> str:
    """Counts in words, by name."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if count) or "none"


def table(runs: Sequence[Figures]) -> str:
    """A row for each run, and what they come to together, in Markdown."""
    lines = ["| seed | minutes | log, gateways, fold | faults | writes | answers | well after, at most | verdict |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for run in runs:
        fold = "small" if "small-fold" in run.about.get("plants", ()) else "Spark"
        defects = [plant for plant in run.about.get("plants", ()) if plant not in ("haste", "small-fold")]
        where = ", ".join([str(run.about.get("log")), str(run.about.get("gateways")), fold, *defects])
        minutes, faults = run.about.get("seconds", 0) / 60, sum(run.faults.values())
        well = f"{_slowest(run):.0f} s" if run.rests else "-"
        lines.append(
            f"| {run.about.get('seed')} | {minutes:g} | {where} | {faults} | {run.writes:,} | {run.answers:,} | {well} | "
            f"{_verdict(run)} |"
        )
    hours = sum(run.about.get("seconds", 0) for run in runs) / 3600
    faults_of, judged = Counter[str](), Counter[str]()
    for run in runs:
        faults_of.update(run.faults)
        judged.update(run.judged)
    good = sum(run.is_good for run in runs)
    return "\n".join(
        [
            *lines,
            "",
            f"{len(runs)} runs, {hours:.2f} hours of traffic, {good} of them without a violation.",
            f"Faults: {sum(faults_of.values()):,}: {counted(faults_of)}.",
            f"Acknowledged writes: {sum(run.writes for run in runs):,}; events: {sum(run.events for run in runs):,}; "
            f"epochs: {sum(run.epochs for run in runs):,}.",
            f"Answers: {sum(run.answers for run in runs):,}. Judged: {counted(judged)}.",
            f"Rests: {sum(len(run.rests) for run in runs):,}, well after {max(map(_slowest, runs), default=0):.1f} s at most.",
        ]
    )


def _slowest(run: Figures) -> float:
    return max((rest for rest in run.rests if rest is not None), default=0.0)


def _verdict(run: Figures) -> str:
    if run.is_good:
        return "no violation"
    what = run.ended.splitlines()[0] if run.ended else counted(run.violations)
    return f"{what} after {run.elapsed_s:.0f} s"

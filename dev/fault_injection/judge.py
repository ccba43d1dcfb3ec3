# SPDX-License-Identifier: Apache-2.0
"""All rules over a finished run, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dev.fault_injection.case import WELL_S, Case, Violation
from dev.fault_injection.evidence import kept_log, read_evidence, read_logs
from dev.fault_injection.figures import Figures, counted, figures_of
from dev.fault_injection.record import read_record
from dev.fault_injection.rules import RULES

_SHOWN: Final = 3
"""Violations of one rule that are printed; how many there are is said."""


def open_case(folder: Path, *, well_limit_s: float = WELL_S) -> Case:
    """A run that `dev.fault_injection.torture.torture` left in this folder."""
    evidence = read_evidence(kept_log(folder / "log.jsonl"), folder / "data" / "lake")
    read_logs(folder.glob("*.log"), evidence)
    return Case(read_record(folder / "record.jsonl"), evidence, well_limit_s)


def judge(case: Case) -> list[Violation]:
    """Every violation, rule by rule; those that show it with the shortest history first."""
    return [
        violation
        for rule in RULES
        for violation in sorted(rule(case), key=lambda violation: sum(map(len, violation.cut)))
    ]


def report(case: Case, violations: Sequence[Violation], again: str) -> tuple[Figures, str]:
    """Figures; and in words figures, violations, and the command that runs it again."""
    figures = figures_of(case, violations, again)
    lines = [
        f"faults: {counted(figures.faults)}",
        *([f"found nobody to hit: {counted(figures.missed)}"] if figures.missed else []),
        f"{figures.writes:,} acknowledged writes, {figures.answers:,} answers to reads, {figures.events:,} events, "
        f"{figures.epochs:,} epochs",
        f"judged: {counted(figures.judged)}",
        f"ended and were started again: {counted(figures.ends)}",
        "well again: "
        + (", ".join("never" if rest is None else f"{rest:.1f} s" for rest in figures.rests) or "not asked"),
    ]
    for rule in RULES:
        found = [violation for violation in violations if violation.rule == rule.__name__]
        title = (rule.__doc__ or rule.__name__).splitlines()[0]
        lines.append(f"{'VIOLATED ' + str(len(found)) + ' times' if found else 'ok'}  {title}")
        for violation in found[:_SHOWN]:
            lines += [f"  {violation.message}", *(f"    {line}" for line in violation.cut)]
    if violations:
        lines.append(f"again: {again}")
    return figures, "\n".join(lines)

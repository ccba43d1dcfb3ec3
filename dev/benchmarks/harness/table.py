# SPDX-License-Identifier: Apache-2.0
"""The table of figures in reports/performance.md, from dev/benchmarks/results/latest.json.

python -m dev.benchmarks.harness.table
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dev.benchmarks.harness.report import Figure, number
from dev.benchmarks.harness.results import Run
from dev.benchmarks.harness.run import RESULTS, ROOT

PAGE: Final = ROOT / "reports" / "performance.md"
BEGIN: Final = "<!-- figures: written by python -m dev.benchmarks.harness.table -->"
END: Final = "<!-- end of figures -->"


def fill(text: str, run: Run) -> str:
    """The page with the figures of a run between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{chr(10).join(_lines(run))}\n{END}{after}"


def _lines(run: Run) -> Iterator[str]:
    machine = run.machine
    yield ""
    yield (
        f"{machine.get('cores')} cores of {machine.get('processor')}, {machine.get('memoryGib')} GiB, "
        f"Linux {machine.get('kernel')}, {machine.get('java')}, Python {machine.get('python')}."
    )
    yield ""
    yield "| bench | figure | reached | asked | | made of |"
    yield "|---|---|---|---|---|---|"
    for result in run.results:
        for figure in result.figures:
            yield _row(result.bench, figure)
        if result.error:
            yield f"| {result.bench} | | | | failed | {_cell(result.error)} |"
    loaded = [f"{result.bench} {result.load_average:.1f}" for result in run.results]
    yield ""
    yield f"Load average of the minute before each: {', '.join(loaded)}."
    yield ""


def _row(bench: str, figure: Figure) -> str:
    value = "none" if figure.value is None else f"{number(figure.value)} {figure.unit}"
    asked = "" if figure.target is None else f"{figure.sense} {number(figure.target)} {figure.unit}"
    verdict = {True: "reached", False: "**missed**", None: ""}[figure.reached]
    cells = (bench, figure.name, value, asked, verdict, _cell(figure.note))
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def main() -> None:
    """Bring the page up to date."""
    run = msgspec.json.decode((RESULTS / "latest.json").read_bytes(), type=Run)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), run), encoding="utf-8")


if __name__ == "__main__":
    main()

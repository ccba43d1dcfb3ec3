# SPDX-License-Identifier: Apache-2.0
"""`routelake bench`: run benches one after the other, print target and result, keep JSON and a chart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dev.benchmarks.harness import machine
from dev.benchmarks.harness.bench import BENCHES, IN_ROUNDS, MICRO, Bench, run_of
from dev.benchmarks.harness.loadgen import program
from dev.benchmarks.harness.report import Result
from dev.benchmarks.harness.results import Run, save, started_now
from runtime.logs import configure
from schemas.errors import SetupError

ROOT: Final = Path(__file__).resolve().parents[3]
RESULTS: Final = ROOT / "dev" / "benchmarks" / "results"


def run_benches(
    names: Sequence[str],
    *,
    rounds: int,
    quick: bool,
    epochs: int = 100_000,
    serve_options: Sequence[str] = (),
    results: Path | None = None,
) -> int:
    """Run the benches; return 1 if one failed. A missed target is not a failure: it is printed, and stands in the JSON.

    Args:
        names: Names of benches; empty: all.
        rounds: Number of measurements of each side of a comparison.
        quick: Small sizes; results are kept only if `results` is given.
        epochs: Number of epochs of the lake that `growth` makes.
        serve_options: More options of routelake.
        results: Folder of the results.

    Raises:
        SetupError: A name is not that of a bench, or there is no C compiler.
    """
    known = (*BENCHES, *MICRO)
    names = [name.replace("_", "-") for name in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SetupError(f"no benchmark {unknown[0]!r}; there are {', '.join(known)}.")
    failed = [name for name in names if name in MICRO and _run_micro(name, rounds)]
    wanted = [name for name in names or BENCHES if name in BENCHES]
    if not wanted:
        return 1 if failed else 0
    configure("bench")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    program()
    started_at, facts = started_now(), machine.describe()
    print(
        f"{facts['cores']} cores {facts['processor']}, {facts['memoryGib']} GiB, Linux {facts['kernel']}, "
        f"{facts['java']}, Python {facts['python']}; load average {machine.load_average()[0]:.2f}",
        flush=True,
    )
    settings = {"rounds": rounds, "quick": quick, "grown_epochs": epochs, "serve_options": tuple(serve_options)}
    done = [_run(name, settings) for name in wanted]
    print()
    for result in done:
        print("\n".join(result.lines()), flush=True)
    missed = sum(len(result.missed) for result in done)
    targets = sum(figure.target is not None for result in done for figure in result.figures)
    print(f"\n{targets - missed} of {targets} targets reached" + (f", {missed} MISSED" if missed else ""))
    if results is not None or not quick:
        print(f"written to {save(results or RESULTS, Run(started_at, facts, settings, done))}")
    return 1 if failed or any(result.error for result in done) else 0


def _run(name: str, settings: dict[str, Any]) -> Result:
    print(f"\n{name}", flush=True)
    began, started_at, load_average = time.monotonic(), started_now(), machine.load_average()[0]
    with tempfile.TemporaryDirectory(prefix=f"routelake-{name}-") as folder:
        bench = Bench(folder=Path(folder), say=_say, **settings)
        try:
            result = run_of(name)(bench)
        except Exception as error:
            result = Result(name, [], error=f"{type(error).__name__}: {error}")
    result.seconds = time.monotonic() - began
    result.started_at, result.load_average = started_at, load_average
    for line in result.lines():
        _say(line)
    return result


def _run_micro(name: str, rounds: int) -> int:
    told = ["--rounds", str(rounds)] if name in IN_ROUNDS else []
    command = [sys.executable, "-m", f"dev.benchmarks.{name.replace('-', '_')}", *told]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode


def _say(text: str) -> None:
    print(text, flush=True)

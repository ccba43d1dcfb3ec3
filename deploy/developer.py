"""`routelake check` and `routelake test`: the same commands for a developer and for CI."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

_CHECKS: Final = (
    ("ruff check", ["ruff", "check", "."]),
    ("ruff format", ["ruff", "format", "--check", "."]),
    ("mypy", ["mypy"]),
    ("import contracts", ["lint-imports"]),
)


def run_checks() -> int:
    """Run every check, also after one has failed; returns 1 if any failed."""
    failed = []
    for name, command in _CHECKS:
        started = time.monotonic()
        code = subprocess.run([str(_tool(command[0])), *command[1:]], cwd=ROOT, check=False).returncode
        print(f"{'ok    ' if code == 0 else 'FAILED'} {name} ({time.monotonic() - started:.1f} s)", flush=True)
        if code != 0:
            failed.append(name)
    if failed:
        print(f"{', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


def run_tests(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; returns its exit code.

    The whole suite runs in two workers: one for what starts JVMs, which mostly waits, and one for all else.
    """
    whole = all(argument.startswith("-") for argument in arguments)
    workers = ("-n", "2") if whole else ()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *workers, *arguments], cwd=ROOT, env=environment, check=False
    ).returncode


def _tool(name: str) -> Path:
    return Path(sys.executable).parent / name

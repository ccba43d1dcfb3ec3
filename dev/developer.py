# SPDX-License-Identifier: Apache-2.0
"""`routelake check`, `fix`, `coverage` and `test`: the same commands for a developer and for CI."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent

_CHECKS: Final = (
    ("ruff check", ["ruff", "check", "."]),
    ("ruff format", ["ruff", "format", "--check", "."]),
    ("mypy", ["mypy"]),
    ("import contracts", ["lint-imports"]),
    ("generated pages", ["python", "-m", "dev.reference", "--check"]),
    ("language", ["python", "-m", "dev.language"]),
    ("links of Markdown files", ["python", "-m", "dev.docs", "--check"]),
    ("changes", ["towncrier", "build", "--draft", "--version", "next"]),
)
_FIXES: Final = (
    ("ruff check", ["ruff", "check", "--fix", "."]),
    ("ruff format", ["ruff", "format", "."]),
    ("generated pages", ["python", "-m", "dev.reference"]),
    ("docs/adr/index.md", ["python", "-m", "dev.docs", "--fix"]),
)


def run_checks() -> int:
    """Run every check, also after one has failed; returns 1 if any failed."""
    return _run_all(_CHECKS)


def run_fixes() -> int:
    """Repair what a program can repair: style, format, generated pages; returns 1 if something is left."""
    return _run_all(_FIXES)


def run_coverage() -> int:
    """Run the tests of `[tool.routelake.coverage]` alone, and judge what they reach.

    Returns:
        pytest's exit code, or coverage's (2) if a group of files has less than its share.
    """
    settings = _coverage_settings()
    slow = [f"--ignore={path}" for path in settings["slow"]]
    return _run_measured(["-n", "2", "-q", "-m", "not jvm", *slow, *settings["tests"]])


def _run_measured(arguments: Sequence[str]) -> int:
    """Run pytest, then hold each group of files against its least share of lines and branches."""
    coverage = [sys.executable, "-m", "coverage"]
    with tempfile.TemporaryDirectory() as folder:
        code = _pytest([*arguments, f"--measure={folder}"])
        if code != 0:
            return code
        environment = {**os.environ, "COVERAGE_FILE": str(Path(folder) / "data")}
        subprocess.run([*coverage, "combine", "-q"], cwd=ROOT, env=environment, check=True)
        for group in _coverage_settings()["groups"]:
            include, least = ",".join(group["files"]), group["least"]
            print(f"\n{group['name']}: at least {least} % of lines and branches", flush=True)
            report = [*coverage, "report", f"--include={include}", f"--fail-under={least}", "--skip-covered"]
            missed = subprocess.run(report, cwd=ROOT, env=environment, check=False).returncode
            code = code or missed
    return code


def _coverage_settings() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    settings: dict[str, Any] = project["tool"]["routelake"]["coverage"]
    return settings


def _run_all(commands: Sequence[tuple[str, list[str]]]) -> int:
    failed = []
    for name, command in commands:
        started = time.monotonic()
        line = [str(_tool(command[0])), *command[1:]]
        found = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        code = found.returncode
        if code != 0:
            print(found.stdout.decode(errors="replace"), flush=True)
        print(f"{'ok    ' if code == 0 else 'FAILED'} {name} ({time.monotonic() - started:.1f} s)", flush=True)
        if code != 0:
            failed.append(name)
    if failed:
        print(f"{', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


def run_tests(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; returns its exit code.

    The whole suite runs in four workers, one for what starts JVMs, which mostly waits; without JVMs in two.
    ``--coverage`` also judges what the tests of `[tool.routelake.coverage]` reach, as `run_coverage` does, without
    running them again.
    """
    whole = all(argument.startswith("-") for argument in arguments)
    workers = ("-n", "2" if "--fast" in arguments else "4") if whole else ()
    plain = [argument for argument in arguments if argument != "--coverage"]
    with _class_data() if whole and _NO_JVM.isdisjoint(arguments) else nullcontext():
        return (_run_measured if "--coverage" in arguments else _pytest)([*workers, *plain])


_NO_JVM: Final = frozenset({"--fast", "--collect-only", "--co", "--version", "--help", "-h"})


@contextmanager
def _class_data() -> Iterator[None]:
    """Write class data for faster starts of Spark, during the first tests. If that fails, Spark starts without it."""
    command = [sys.executable, "-m", "dev.support.class_data"]
    nowhere = subprocess.DEVNULL
    writing = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdin=nowhere, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        writing.terminate()
        writing.wait()


def _pytest(arguments: Sequence[str]) -> int:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=_environment(), check=False
    ).returncode


def _environment() -> dict[str, str]:
    """Without PYTHONDONTWRITEBYTECODE: each of some hundred processes would compile the same 240 files, for 0.5 s."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def run_torture(arguments: Sequence[str]) -> int:
    """Run dev/fault_injection as a program, a process that knows nothing of this one; returns its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dev.fault_injection", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _tool(name: str) -> Path:
    return Path(sys.executable).parent / name

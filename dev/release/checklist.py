# SPDX-License-Identifier: Apache-2.0
"""The release checklist as a program: ``./routelake release --check``.

Each step is a command or a function. All steps run, even if one fails. If the program of a step is not on this
machine, the step is skipped and the last line names it.

All steps take hours. So a record in `reports` keeps the long steps that succeeded, and the next run leaves them out, on
this machine or another. A success counts until the code, the deployment files, or the tests of the step change
(`_content`). The short steps always run.
"""

from __future__ import annotations

import datetime
import filecmp
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

import pytest

from dev.benchmarks.harness.report import BENCHES
from dev.release.build import build, git
from dev.release.components import ROOT
from schemas.errors import SetupError

PYTHONS: Final = ("3.11", "3.12", "3.13")
PROCESSORS: Final = ("x86_64", "aarch64")
RECORD: Final = ROOT / "reports" / "release-check.json"
"""The long steps that succeeded: by name, the content that was checked, the day, and the seconds it took."""

_TEXTS: Final = ("docs/", "reports/", "changes/", "dev/benchmarks/results/")
"""Changes in these folders do not affect long steps. Changes of Markdown files in other folders do not either."""


class Step(NamedTuple):
    """One step.

    Attributes:
        name: Name by which the step can be chosen. The part before "/" chooses all steps of a group.
        run: Returns None if the step succeeded, else a description of the failure.
        needs: Program without which it is skipped.
        short: It takes at most a few minutes, and always runs.
        tests: Beginnings of the paths of its tests. Changes of other tests do not affect it.
    """

    name: str
    run: Callable[[], str | None]
    needs: str = ""
    short: bool = False
    tests: tuple[str, ...] = ()


class Success(TypedDict):
    """A long step that succeeded: see `RECORD`."""

    content: str
    date: str
    seconds: int


def main(names: Sequence[str]) -> int:
    """Run the steps of these names, or all but the long ones that have succeeded; returns 1 if one failed."""
    known = set().union(*map(_names, STEPS))
    if unknown := sorted(set(names) - known):
        print(f"no step {unknown[0]!r}; there are {', '.join(step.name for step in STEPS)}.", file=sys.stderr)
        return 2
    record: dict[str, Success] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    failed, skipped = [], []
    for step in STEPS:
        if names and not _names(step).intersection(names):
            continue
        content = None if step.short else _content(step.tests)
        before = record.get(step.name)
        if not names and before is not None and before["content"] == content:
            print(f"ok      {step.name} (before, {before['date']})", flush=True)
            continue
        if step.needs and shutil.which(step.needs) is None:
            skipped.append(f"{step.name} (there is no {step.needs} on this machine)")
            continue
        started = time.monotonic()
        fault = _run(step)
        took_s = round(time.monotonic() - started)
        print(f"{'FAILED ' if fault else 'ok     '} {step.name} ({took_s} s)", flush=True)
        if fault:
            print(f"        {fault}", flush=True)
            failed.append(step.name)
        if content is None or content != _content(step.tests):
            continue
        record.pop(step.name, None)
        if not fault:
            day = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
            record[step.name] = {"content": content, "date": day, "seconds": took_s}
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=2) + "\n", encoding="utf-8")
    if skipped:
        print(f"skipped: {', '.join(skipped)}", flush=True)
    return 1 if failed else 0


def _names(step: Step) -> set[str]:
    """Return the names by which a step can be chosen: its own, and that of its group, which is the part before "/"."""
    return {step.name, step.name.partition("/")[0]}


def _content(tests: tuple[str, ...]) -> str | None:
    """Digest of what a step depends on: all files but the texts, and of the tests only its own.

    Returns:
        None if there is no clone, or such a file differs from the commit.
    """

    def counts(path: str) -> bool:
        is_text = path.startswith(_TEXTS) or path.endswith(".md")
        return not is_text and (not path.startswith("tests/") or path.startswith(tests))

    try:
        changed = git("diff", "--name-only", "--no-renames", "HEAD").splitlines()
        changed += git("ls-files", "--others", "--exclude-standard").splitlines()
        committed = git("ls-tree", "-r", "HEAD").splitlines()
    except (SetupError, OSError):
        return None
    if any(map(counts, changed)):
        return None
    kept = [line for line in committed if counts(line.partition("\t")[2])]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def _run(step: Step) -> str | None:
    try:
        return step.run()
    except SetupError as error:
        return str(error)


def _version() -> str | None:
    """Changelog, golden copies, SECURITY.md and README.md are those of the release, and no change fragment is left."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    if f"## {version} (" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        return f"CHANGELOG.md has no heading of {version}. Run `towncrier build --version {version}`."
    if left := sorted((ROOT / "changes").glob("+*.md")):
        return f"{len(left)} change fragments are left, the first is {left[0].name}."
    if not (ROOT / "tests" / "schemas" / "golden" / version).is_dir():
        return f"there are no golden copies. Run `python -m dev.release.golden {version}`."
    if version.rpartition(".")[0] not in (ROOT / "SECURITY.md").read_text(encoding="utf-8"):
        return f"SECURITY.md does not list {version} among the supported versions."
    if "not yet released" in (ROOT / "README.md").read_text(encoding="utf-8"):
        return 'README.md says "not yet released".'
    return None


def _files() -> str | None:
    """All changes but the record are committed, and two builds are equal: wheel, lock files, deploy, SBOM, licenses."""
    if changed := git("diff", "--name-only", "HEAD", "--", f":(exclude){RECORD.relative_to(ROOT)}").splitlines():
        return f"{len(changed)} changed files are not committed, the first is {changed[0]}."
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for folder in (one, other):
            build(Path(folder))
        names = sorted(path.name for path in Path(one).iterdir())
        _, differing, absent = filecmp.cmpfiles(one, other, names, shallow=False)
    return f"two builds differ in {', '.join(differing + absent)}" if differing or absent else None


def _platforms() -> str | None:
    """Each package has a wheel for each Python and processor that the documents name, with glibc 2.28 or newer."""
    lock = str(ROOT / "requirements.lock")
    # pyspark has no wheel, and no code for a processor.
    options = ["--no-deps", "--only-binary", ":all:", "--no-binary", "pyspark", "--build-constraints", lock, "-r", lock]
    installer = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--dry-run", *options]
    for processor, python in itertools.product(PROCESSORS, PYTHONS):
        with tempfile.TemporaryDirectory() as folder:
            chosen = [
                "--python-platform",
                f"{processor}-manylinux_2_28",
                "--python-version",
                python,
                "--target",
                folder,
            ]
            done = subprocess.run([*installer, *chosen], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"Python {python} on {processor}: {done.stderr.strip()}"
    return None


def _command(*words: str, succeeds: Container[int] = (0,)) -> Callable[[], str | None]:
    """A step that runs a command in this clone. The word DIST becomes a folder with the files of the release.

    Args:
        words: The command.
        succeeds: Exit codes of success.
    """

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            if "DIST" in words:
                build(Path(folder))
            command = [folder if word == "DIST" else word for word in words]
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return None if code in succeeds else f"{' '.join(words)} ended with exit code {code}"

    return run


_PRIVATE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""Only the program itself sees what it mounts, and its processes end with it."""
_BARE: Final = ("sh", "dev/release/bare_machine.sh", "DIST", "trixie")

_ROUNDS: Final = ("--rounds", "3")
_GROWN: Final = ("--epochs", "5000")
"""A lake that is old enough to show growth. The default of 100,000 epochs takes two hours."""


def _bench(name: str) -> Step:
    """Return the step of a benchmark. It writes to `build`, so that no file of the commit changes."""
    options = (*_ROUNDS, *(_GROWN if name == "growth" else ()), "--results", "build/benchmarks")
    return Step(f"bench-{name}", _command("./routelake", "bench", name, *options))


def _deep(folder: str) -> list[Step]:
    """Return the steps of what --deep adds to the tests of a folder, perhaps nothing. The migration has its own step.

    The folders that take hours have a step for each file, so that a failure does not repeat all of it.
    """
    here = ROOT / "tests" / folder
    if folder not in _LONG_FOLDERS:
        return [_deep_step(f"deep-{folder}", f"tests/{folder}/")]
    helpers = [
        f"tests/{folder}/{path.name}" for path in sorted(here.iterdir()) if not path.name.startswith(("test_", "__"))
    ]
    files = [f"tests/{folder}/{path.name}" for path in sorted(here.glob("test_*.py"))]
    return [_deep_step(f"deep-{folder}/{Path(file).stem}", file, *helpers) for file in files if file != _MIGRATION]


def _deep_step(name: str, chosen: str, *helpers: str) -> Step:
    words = ("./routelake", "test", "--only-deep", "-n", "2", chosen)
    good = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return Step(name, _command(*words, succeeds=good), tests=(*_COMMON_TESTS, chosen, *helpers))


_COMMON_TESTS: Final = ("tests/conftest.py", "tests/examples/", "tests/schemas/golden/")
"""Tests of several folders use these."""
_TEST_FOLDERS: Final = sorted(path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py")))
_LONG_FOLDERS: Final = ("e2e", "fault_injection")
_MIGRATION: Final = "tests/e2e/test_migration.py"

STEPS: Final = (
    Step("version", _version, short=True),
    Step("files", _files, needs="git", short=True),
    Step("platforms", _platforms, short=True),
    Step("check", _command("./routelake", "check"), short=True),
    Step("docs", _command("./routelake", "docs"), short=True),
    Step("tests", _command("./routelake", "test", "--coverage"), tests=("tests/",)),
    *itertools.chain.from_iterable(map(_deep, _TEST_FOLDERS)),
    Step("migration", _command("./routelake", "test", "--deep", _MIGRATION), tests=(*_COMMON_TESTS, _MIGRATION)),
    *map(_bench, BENCHES),
    Step("gateway-image", _command("sh", "dev/release/image.sh", "DIST", "gateway"), needs="podman"),
    Step("fold-image", _command("sh", "dev/release/image.sh", "DIST", "fold"), needs="podman"),
    Step("bare-debian", _command(*_PRIVATE, *_BARE), needs="debootstrap"),
)
"""Steps of a release, quick ones first."""

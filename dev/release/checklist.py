# SPDX-License-Identifier: Apache-2.0
"""The release checklist as a program: ``./routelake release --check``.

Each step is a command or a function. All steps run, even if one fails. If the program of a step is not on this
machine, the step is skipped and the last line names it. All steps take hours, so a run goes on where the previous run
ended: a step that succeeded at this commit does not run again.
"""

from __future__ import annotations

import filecmp
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dev.benchmarks.harness.report import BENCHES
from dev.release.build import build, git
from dev.release.components import ROOT
from schemas.errors import SetupError

PYTHONS: Final = ("3.11", "3.12", "3.13")
PROCESSORS: Final = ("x86_64", "aarch64")
RECORD: Final = ROOT / "build" / "release-check.json"
"""The commit that the last run checked, and the names of its steps that succeeded."""


class Step(NamedTuple):
    """One step.

    Attributes:
        name: Name by which the step can be chosen.
        run: Returns None if the step succeeded, else a description of the failure.
        needs: Program without which it is skipped.
    """

    name: str
    run: Callable[[], str | None]
    needs: str = ""


def main(names: Sequence[str]) -> int:
    """Run the steps of these names, or all that have not succeeded at this commit; returns 1 if one failed."""
    unknown = sorted(set(names) - {step.name for step in STEPS})
    if unknown:
        print(f"no step {unknown[0]!r}; there are {', '.join(step.name for step in STEPS)}.", file=sys.stderr)
        return 2
    commit = _commit()
    succeeded = _succeeded(commit)
    failed, skipped = [], []
    for step in STEPS:
        if names and step.name not in names:
            continue
        if not names and step.name in succeeded:
            print(f"ok      {step.name} (before, at this commit)", flush=True)
            continue
        if step.needs and shutil.which(step.needs) is None:
            skipped.append(f"{step.name} (there is no {step.needs} on this machine)")
            continue
        started = time.monotonic()
        fault = _run(step)
        print(f"{'FAILED ' if fault else 'ok     '} {step.name} ({time.monotonic() - started:.0f} s)", flush=True)
        succeeded.discard(step.name)
        if fault:
            print(f"        {fault}", flush=True)
            failed.append(step.name)
        elif commit == _commit():
            succeeded.add(step.name)
        if commit is not None:
            RECORD.parent.mkdir(exist_ok=True)
            RECORD.write_text(json.dumps({"commit": commit, "succeeded": sorted(succeeded)}), encoding="utf-8")
    if skipped:
        print(f"skipped: {', '.join(skipped)}", flush=True)
    return 1 if failed else 0


def _commit() -> str | None:
    """The commit that is checked, or None where files differ from it or there is no clone: then nothing is recorded."""
    try:
        return None if git("status", "--porcelain").strip() else git("rev-parse", "HEAD").strip()
    except (SetupError, OSError):
        return None


def _succeeded(commit: str | None) -> set[str]:
    """Names of the steps that succeeded at a commit, by the record of earlier runs."""
    if commit is None or not RECORD.exists():
        return set()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return set(record["succeeded"]) if record["commit"] == commit else set()


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
    """All changes are committed, and two builds of the commit are equal: wheel, lock files, deploy, SBOM, licenses."""
    if changed := git("diff", "--name-only", "HEAD").splitlines():
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


def _command(*words: str) -> Callable[[], str | None]:
    """A step that runs a command in this clone. The word DIST becomes a folder with the files of the release."""

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            if "DIST" in words:
                build(Path(folder))
            command = [folder if word == "DIST" else word for word in words]
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return f"{' '.join(words)} ended with exit code {code}" if code else None

    return run


_PRIVATE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""Only the program itself sees what it mounts, and its processes end with it."""
_BARE: Final = ("sh", "dev/release/bare_machine.sh", "DIST", "trixie")

_GROWN: Final = ("--epochs", "5000")
"""A lake that is old enough to show growth. The default of 100,000 epochs takes two hours."""


def _bench(name: str) -> Step:
    """Return the step of a benchmark. It writes to `build`, so that no file of the commit changes."""
    options = _GROWN if name == "growth" else ()
    return Step(f"bench-{name}", _command("./routelake", "bench", name, *options, "--results", "build/benchmarks"))


_TEST_FOLDERS: Final = sorted(path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py")))

STEPS: Final = (
    Step("version", _version),
    Step("files", _files, needs="git"),
    Step("platforms", _platforms),
    Step("check", _command("./routelake", "check")),
    Step("docs", _command("./routelake", "docs")),
    Step("tests", _command("./routelake", "test", "--coverage")),
    *(Step(f"deep-{name}", _command("./routelake", "test", "--deep", f"tests/{name}")) for name in _TEST_FOLDERS),
    Step("migration", _command("./routelake", "test", "--deep", "tests/e2e/test_migration.py")),
    *map(_bench, BENCHES),
    Step("gateway-image", _command("sh", "dev/release/image.sh", "DIST", "gateway"), needs="podman"),
    Step("fold-image", _command("sh", "dev/release/image.sh", "DIST", "fold"), needs="podman"),
    Step("bare-debian", _command(*_PRIVATE, *_BARE), needs="debootstrap"),
)
"""Steps of a release, quick ones first."""

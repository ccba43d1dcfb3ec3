# SPDX-License-Identifier: Apache-2.0
"""The release checklist as a program: each step is a command, and all of them are run even if one fails.

``./routelake release --check`` runs them. A step whose program is not on this machine is skipped and named.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]


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
    """Run the steps of these names, or all of them; returns 1 if one failed."""
    unknown = sorted(set(names) - {step.name for step in STEPS})
    if unknown:
        print(f"no step {unknown[0]!r}; there are {', '.join(step.name for step in STEPS)}.", file=sys.stderr)
        return 2
    failed = []
    for step in STEPS:
        if names and step.name not in names:
            continue
        if step.needs and shutil.which(step.needs) is None:
            print(f"skipped {step.name}: there is no {step.needs} on this machine", flush=True)
            continue
        started = time.monotonic()
        fault = step.run()
        print(f"{'FAILED ' if fault else 'ok     '} {step.name} ({time.monotonic() - started:.0f} s)", flush=True)
        if fault:
            print(f"        {fault}", flush=True)
            failed.append(step.name)
    return 1 if failed else 0


def _command(*words: str) -> Callable[[], str | None]:
    def run() -> str | None:
        code = subprocess.run([str(ROOT / "routelake"), *words], cwd=ROOT, check=False).returncode
        return f"./routelake {' '.join(words)} ended with exit code {code}" if code else None

    return run


def _version() -> str | None:
    """The version is in the changelog, no change fragment is left, and golden copies exist."""
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
    return None


def _wheel() -> str | None:
    """Two builds of the commit in two folders are equal."""
    digests = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
            code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
            built = subprocess.run(
                [sys.executable, "-c", code, folder], cwd=source, capture_output=True, text=True, check=False
            )
            if built.returncode:
                return built.stderr.strip().splitlines()[-1]
            (wheel,) = Path(folder).glob("*.whl")
            digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    return None if len(set(digests)) == 1 else f"two builds differ: {', '.join(digests)}"


def _image(name: str) -> Callable[[], str | None]:
    def run() -> str | None:
        command = ["podman", "build", "-f", f"deploy/{name}.Containerfile", "-t", f"routelake-{name}", "."]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return f"podman build of {name} ended with exit code {code}" if code else None

    return run


STEPS: Final = (
    Step("version", _version),
    Step("wheel", _wheel, needs="git"),
    Step("check", _command("check")),
    Step("docs", _command("docs")),
    Step("tests", _command("test", "--coverage")),
    Step("deep-tests", _command("test", "--deep")),
    Step("benches", _command("bench")),
    Step("gateway-image", _image("gateway"), needs="podman"),
    Step("fold-image", _image("fold"), needs="podman"),
)
"""Steps of a release, quick ones first."""

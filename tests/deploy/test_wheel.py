# SPDX-License-Identifier: Apache-2.0
"""The wheel: what runs from a clone runs from it as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT

NOT_CODE = (
    "deploy/README.md",
    "deploy/compose/",
    "deploy/helm/",
    "deploy/mixin/",
    "deploy/systemd/",
    "deploy/launcher/",
)
"""For people, or for other programs than ours; and the launcher, which is `routelake` itself there."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git knows, and unpacked."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git here, or this is no clone: what belongs to the wheel is what git knows")
    folder = tmp_path_factory.mktemp("wheel")
    source, out, unpacked = folder / "source", folder / "out", folder / "unpacked"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "dev/benchmarks/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    out.mkdir()
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(unpacked)
    return unpacked


def test_it_has_every_file_of_the_rooms(wheel: Path) -> None:
    rooms = {path.name for path in (wheel / "routelake" / "rooms").iterdir() if path.is_dir()}
    listed = subprocess.run(["git", "ls-files", *sorted(rooms)], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {
        name
        for name in listed.stdout.splitlines()
        if not name.startswith(NOT_CODE) and not name.endswith(".Containerfile") and (ROOT / name).is_file()
    }
    assert len(wanted) > 300
    assert {name for name in wanted if not (wheel / "routelake" / "rooms" / name).is_file()} == set()


def test_it_starts(wheel: Path, tmp_path: Path) -> None:
    """The console's files among it, which are read while the gateway's application is imported."""
    code = "import routelake, api.http.app, cli.main; print(api.http.app.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))

# SPDX-License-Identifier: Apache-2.0
"""The files of a release, in one folder: ``./routelake release`` writes them to dist.

The wheel is the only package of the product. The container images install it, the systemd units and the chart start it.
Two builds of one commit are equal byte for byte, so a stranger can check what a release has.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from dev.release.components import ROOT, components
from dev.release.documents import license_texts, sbom
from runtime import version
from schemas.errors import SetupError

LOCKS: Final = ("requirements.lock", "requirements-gateway.lock")
"""Lock files of the Python packages: of all that a server runs, and of a gateway alone."""
_BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def build(folder: Path) -> None:
    """Write the files of a release of the present commit into an empty folder.

    Raises:
        SetupError: The folder is in use, this is not a clone, or the license of a component is unknown.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} is not empty. Remove it: rm -r {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        git("clone", "-q", str(ROOT), str(source))
        build_wheel(source, folder)
        for name in LOCKS:
            shutil.copyfile(source / name, folder / name)
    name = f"routelake-{version.release()}"
    git("archive", "--format=tar.gz", f"--output={folder / name}-deploy.tar.gz", "HEAD", "deploy")
    found = components()
    when = datetime.fromisoformat(git("log", "-1", "--format=%cI"))
    (folder / f"{name}.cdx.json").write_text(sbom(version.release(), when, found), encoding="utf-8")
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(license_texts(found), encoding="utf-8")
    _write_digests(folder)


def build_wheel(source: Path, folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Build the wheel of a source folder as pip does, and return its path. Raises SetupError."""
    command = [sys.executable, "-c", _BUILD, str(folder)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"The wheel cannot be built: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _write_digests(folder: Path) -> None:
    """Write SHA256SUMS, which ``sha256sum --check`` reads."""
    files = sorted(folder.iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def git(*words: str) -> str:
    """Run git in this clone, with the same modes in every archive, and return what it prints. Raises SetupError."""
    done = subprocess.run(
        ["git", "-c", "tar.umask=0022", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"git {words[0]} failed: {done.stderr.strip()} A release is built in a clone, with git.")
    return done.stdout.strip()

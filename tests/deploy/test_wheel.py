# SPDX-License-Identifier: Apache-2.0
"""The wheel: what runs from a clone runs from it as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.release.build import build_wheel

NOT_CODE = (
    "deploy/README.md",
    "deploy/compose/",
    "deploy/helm/",
    "deploy/mixin/",
    "deploy/systemd/",
    "deploy/launcher/",
)
"""For people, or for other programs than ours; and the launcher, which is `routelake` itself there."""


def copy_source(source: Path, *, reverse: bool = False) -> None:
    """Copy what git knows of the product into a folder, optionally with the files in reverse order."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(filter(None, listed.split("\0")), reverse=reverse):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "dev/benchmarks/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)


def build(source: Path, out: Path, **environment: str) -> Path:
    """Build the wheel of a source folder into a new folder, and return its path."""
    out.mkdir()
    return build_wheel(source, out, {**os.environ, **environment})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git knows."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git here, or this is no clone: what belongs to the wheel is what git knows")
    folder = tmp_path_factory.mktemp("wheel")
    copy_source(folder / "source")
    return build(folder / "source", folder / "out")


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The folder of the unpacked wheel."""
    unpacked = built.parent / "unpacked"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.mark.deep
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    """In another folder, from files of another age, order and mode, with another umask, and after an earlier build."""
    source = tmp_path / "elsewhere"
    copy_source(source, reverse=True)
    for path in source.rglob("*"):
        if path.is_file():
            os.utime(path, (1_000_000_000, 1_000_000_000))
            path.chmod(path.stat().st_mode & 0o700)
    leftover = source / "build" / "lib" / "routelake" / "rooms" / "api" / "left_the_source.py"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    before = os.umask(0o077)
    try:
        again = build(source, tmp_path / "out", SOURCE_DATE_EPOCH="1600000000", TZ="Asia/Tokyo", LC_ALL="C")
    finally:
        os.umask(before)
    assert again.name == built.name
    if again.read_bytes() != built.read_bytes():
        with zipfile.ZipFile(again) as one, zipfile.ZipFile(built) as other:
            differing = {repr(info) for info in one.infolist()} ^ {repr(info) for info in other.infolist()}
        pytest.fail(f"the archives differ: {sorted(differing)[:10]}")


def test_the_server_extra_brings_all_that_a_server_runs(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert (
        'Requires-Dist: routelake[gateway,fold,object-store,clients]; extra == "server"' in metadata.splitlines()
        or ('Requires-Dist: routelake[clients,fold,gateway,object-store]; extra == "server"' in metadata.splitlines())
    ), metadata
    assert set(extras) - {"server", "setup", "dev"} == {"gateway", "fold", "object-store", "clients"}


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


def test_the_command_of_an_installation_runs(built: Path, tmp_path: Path) -> None:
    """The packages that the wheel needs are those of this environment; `./routelake release --check` installs them too."""
    uv, place = str(Path(sys.executable).parent / "uv"), tmp_path / "installed"
    installing = [uv, "pip", "install", "--offline", "--no-deps", "--no-cache", "--python", str(place), str(built)]
    for command in ([uv, "venv", "--offline", "--python", sys.executable, str(place)], installing):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (packages,) = place.glob("lib/python3*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_paths()["purelib"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [place / "bin" / "routelake", "plan", "--brokers", "10", "--topics", "100"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "9876" in done.stdout
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    done = subprocess.run([place / "bin" / "routelake", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"routelake {version}\n"
    for words, says in (
        (["servee"], "Did you mean 'routelake serve'? See routelake -h."),
        (["sql", "SELECT 1", "--data-dir", str(tmp_path)], "'routelake serve' creates one."),
        (["completion", "zsh"], f" {place / 'bin' / 'routelake'})"),
    ):
        command = [str(place / "bin" / "routelake"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert says in done.stdout + done.stderr and "./routelake" not in done.stdout + done.stderr, done

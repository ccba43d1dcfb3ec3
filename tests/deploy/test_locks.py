# SPDX-License-Identifier: Apache-2.0
"""The committed lock files keep what the set-up relies on."""

from __future__ import annotations

import re
import tomllib

import pytest

from dev.jars_lock import ON_SPARK, ROOTS
from dev.peers.routelake import ROOT
from runtime.jars import LOCK_FILE, pyspark_jars, read_lock

RUNTIME = (ROOT / "requirements.lock").read_text()
GATEWAY = (ROOT / "requirements-gateway.lock").read_text()
DEV = (ROOT / "requirements-dev.lock").read_text()
DOCS = (ROOT / "requirements-docs.lock").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def requirements(lock: str) -> set[str]:
    """``name==version ; marker`` with its hashes, one string a package."""
    text = re.sub(r"^\s*#.*\n", "", lock, flags=re.MULTILINE).replace("\\\n", "")
    return {" ".join(line.split()) for line in text.splitlines()}


def test_the_dev_lock_holds_the_runtime_lock() -> None:
    assert requirements(GATEWAY) < requirements(RUNTIME) < requirements(DEV)


@pytest.mark.parametrize("lock", [GATEWAY, RUNTIME, DEV, DOCS], ids=["gateway", "runtime", "dev", "docs"])
def test_every_requirement_is_exact_and_hashed_and_names_no_registry(lock: str) -> None:
    assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in requirements(lock))
    assert "://" not in lock


def test_the_locks_are_of_this_pyproject() -> None:
    extras = PROJECT["optional-dependencies"]
    base = {*PROJECT["dependencies"], *extras["gateway"], *extras["object-store"]}
    assert base <= {line.split()[0] for line in requirements(GATEWAY)}
    wanted = {*base, *extras["fold"], *extras["clients"], *extras["setup"]}
    assert wanted <= {line.split()[0] for line in requirements(RUNTIME)}
    assert {*wanted, *extras["dev"]} <= {line.split()[0] for line in requirements(DEV)}
    assert {*PYPROJECT["dependency-groups"]["docs"]} <= {line.split()[0] for line in requirements(DOCS)}


def test_the_jars_lock_is_of_these_roots() -> None:
    sets = read_lock(LOCK_FILE.read_text())
    assert sets.keys() == ROOTS.keys()
    for name, roots in ROOTS.items():
        coordinates = [jar.coordinates for jar in sets[name]]
        assert set(roots) <= set(coordinates)
        assert len(coordinates) == len(set(coordinates))


@pytest.mark.parametrize("set_name", sorted(ON_SPARK))
def test_nothing_that_pyspark_ships_is_added_to_its_driver(set_name: str) -> None:
    home = pyspark_jars()
    assert home is not None
    shipped = {re.sub(r"-\d.*", "", path.name) for path in home.iterdir()}
    added = {jar.coordinates.split(":")[1] for jar in read_lock(LOCK_FILE.read_text())[set_name]}
    assert not shipped & added

# SPDX-License-Identifier: Apache-2.0
"""What `./routelake check` and CI rely on: decisions are numbered once, and the commands name tests and files that exist."""

from __future__ import annotations

import re
import tomllib

from dev.peers.routelake import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def test_decisions_are_numbered_once_in_a_row_and_say_their_number() -> None:
    assert [int(path.name[:4]) for path in ADRS] == list(range(1, len(ADRS) + 1))
    for path in ADRS:
        assert path.read_text(encoding="utf-8").startswith(f"# {int(path.name[:4])}. "), path.name


def test_every_decision_that_is_referred_to_exists() -> None:
    folders = (*PACKAGES, "docs")
    files = [path for folder in folders for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    numbers = {path.name[:4] for path in ADRS}
    for path in [*files, *ROOT.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        named = {f"{int(one):04}" for one in re.findall(r"\bADR (\d+)", text)} | set(
            re.findall(r"docs/adr/(\d{4})", text)
        )
        assert named <= numbers, path


def test_no_package_is_left_out_of_a_check() -> None:
    there = sorted([path.parent.name for path in ROOT.glob("*/__init__.py")] + ["tests"])
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"] for contract in contracts if contract["type"] == "layers" and "containers" not in contract
    )
    assert there == sorted(PACKAGES)
    assert there == sorted(PROJECT["tool"]["mypy"]["files"])
    assert there == sorted(name for layer in layers for name in layer.split(" | "))
    (acyclic,) = (contract["ancestors"] for contract in contracts if contract["type"] == "acyclic_siblings")
    assert there == sorted([*acyclic, "tests"])


def test_what_coverage_measures_is_there() -> None:
    settings = PROJECT["tool"]["routelake"]["coverage"]
    assert all((ROOT / path).exists() for path in (*settings["tests"], *settings["slow"]))
    assert all(path.startswith(tuple(settings["tests"])) for path in settings["slow"])
    for group in settings["groups"]:
        assert all(any(ROOT.glob(pattern)) for pattern in group["files"]), group


def test_what_fast_leaves_out_is_there() -> None:
    source = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    named = re.findall(r'"([\w/]+(?:\.py)?)"', source.partition("_NOT_FAST = (")[2].partition("\n)\n")[0])
    assert len(named) > 20
    assert all((ROOT / "tests" / name).exists() for name in named)


def test_every_source_file_names_its_licence() -> None:
    """ruff's CPY001 holds the Python files to it; here are the others."""
    others = ["routelake", ".ci/run", "pipelines/spark_python", "pipelines/log4j2.properties"]
    others += [
        str(path.relative_to(ROOT)) for kind in ("*.c", "*.h") for path in (ROOT / "dev" / "benchmarks").rglob(kind)
    ]
    others += [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.java")]
    assert len(others) > 8
    for name in others:
        head = (ROOT / name).read_text(encoding="utf-8").splitlines()[:2]
        assert any(line.endswith(" SPDX-License-Identifier: Apache-2.0") for line in head), name

# SPDX-License-Identifier: Apache-2.0
"""reports/rocketmq-tests.md and docs/reference/compatibility.md name tests that exist, and the former every Java test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from tests.examples.all import EXAMPLES

CHECKLIST = ROOT / "reports" / "rocketmq-tests.md"
DIFFERENCES = ROOT / "docs" / "reference" / "compatibility.md"

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[(\w+)\])?`")


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@pytest.mark.parametrize("document", [CHECKLIST, DIFFERENCES], ids=lambda path: path.name)
def test_every_test_that_is_named_exists(document: Path) -> None:
    named = _NAMED.findall(document.read_text(encoding="utf-8"))
    assert len(named) > 15
    missing = [
        f"{path}::{name}[{example}]"
        for path, name, example in named
        if not (ROOT / path).exists() or name not in names_in(path) or example not in {"", *EXAMPLES}
    ]
    assert missing == []


def test_every_file_that_is_named_exists() -> None:
    for document in (CHECKLIST, DIFFERENCES):
        for path in re.findall(
            r"`((?:tests|docs|benchmarks)/[\w/.-]+)(?:::\w+)?`", document.read_text(encoding="utf-8")
        ):
            assert (ROOT / path).exists(), path


def test_every_difference_has_a_reason_and_a_test() -> None:
    rows = [line for line in DIFFERENCES.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line)]
    numbers = []
    for row in rows:
        number, theirs, ours, why, shown = (cell.strip() for cell in row.strip("|").split("|"))
        numbers.append(int(number))
        assert theirs and ours and why, row
        assert _NAMED.search(shown), f"no test: {row}"
    assert numbers == sorted(set(numbers))


def sections() -> dict[str, list[str]]:
    """Java class -> methods in the checklist. The report's last section is about other tests of RocketMQ."""
    found: dict[str, list[str]] = {}
    checklist, title, _ = CHECKLIST.read_text(encoding="utf-8").partition("## RocketMQ's own integration tests")
    assert title
    for line in checklist.splitlines():
        if line.startswith("## "):
            methods = found[line.removeprefix("## ")] = []
        elif line.startswith("| ") and not line.startswith("| Java"):
            methods.append(line.split("|")[1].strip())
    return found


def test_the_checklist_is_complete() -> None:
    """As many as there are @Test methods in the Java sources (one of them commented out)."""
    found = sections()
    assert {name: len(methods) for name, methods in found.items()} == {
        "routeinfo.RouteInfoManagerNewTest": 29,
        "routeinfo.RouteInfoManagerTest": 12,
        "routeinfo.RouteInfoManagerStaticRegisterTest": 9,
        "routeinfo.RouteInfoManagerBrokerRegisterTest": 2,
        "routeinfo.RouteInfoManagerBrokerPermTest": 2,
        "routeinfo.BrokerHousekeepingServiceTest": 3,
        "routeinfo.GetRouteInfoBenchmark, RegisterBrokerBenchmark": 1,
        "processor.RequestProcessorTest": 28,
        "processor.ClusterTestRequestProcessorTest": 5,
        "route.ZoneRouteRPCHookTest": 4,
        "route.ZoneRouteRPCHookMoreTest": 3,
        "kvconfig.KVConfigManagerTest": 2,
        "kvconfig.KVConfigSerializeWrapperTest": 1,
        "NamesrvControllerTest": 7,
        "NamesrvStartupTest": 4,
        "NameServerInstanceTest": 1,
    }

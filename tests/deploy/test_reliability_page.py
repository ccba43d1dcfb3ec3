# SPDX-License-Identifier: Apache-2.0
"""reports/fault-to-test.md: every test that it names is there, and no fault, bad input or finding is left out."""

from __future__ import annotations

import re
from functools import cache

import pytest

from dev.peers.routelake import ROOT

PAGE = (ROOT / "reports" / "fault-to-test.md").read_text(encoding="utf-8")


@cache
def functions(path: str) -> set[str]:
    return set(
        re.findall(r"^ *(?:async )?def (\w+)", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.MULTILINE)
    )


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 80
    assert not [f"{path}::{name}" for path, name in named if name not in functions(path)]


@pytest.mark.parametrize(("heading", "last"), [("Faults", 32), ("Bad input", 57), ("Attacks that succeeded once", 11)])
def test_no_row_is_missing(heading: str, last: int) -> None:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: list[int] = []
    for numbers in re.findall(r"^\| ([\d, -]+) \|", section, re.MULTILINE):
        for part in numbers.split(", "):
            first, _, end = part.partition("-")
            found += range(int(first), int(end or first) + 1)
    assert sorted(found) == list(range(1, last + 1))


def test_a_row_names_a_test_or_says_that_it_is_open() -> None:
    rows = re.findall(r"^\| [\d, -]+ \| .*$", PAGE, re.MULTILINE)
    assert not [row for row in rows if "::" not in row and "open" not in row]

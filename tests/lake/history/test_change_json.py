# SPDX-License-Identifier: Apache-2.0
"""Lines of CSV: whatever a stranger has registered, no cell is a formula."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.peers.routelake import ROOT
from lake.history.change_json import FORMULA, csv_line, csv_text

SIGNS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"
BEFORE = st.text(" \t\u00a0\u3000\u200b\ufeff\"'\u2018\u201c\x00", max_size=3)


def only(line: str) -> list[str]:
    (row,) = csv.reader(io.StringIO(line, newline=""))
    return row


@given(BEFORE, st.sampled_from(SIGNS), st.text(max_size=5))
def test_what_a_spreadsheet_would_compute_is_text(before: str, sign: str, rest: str) -> None:
    text = (before + sign + rest).replace("\x00", "")
    assert only(csv_line([text, "end"])) == [f"'{text}", "end"]


@given(st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), min_size=1))
def test_every_other_text_stays_as_it_is(cells: list[str]) -> None:
    line = csv_line(cells)
    assert line.endswith("\r\n")
    if cells != [""]:
        assert only(line) == [f"'{cell}" if FORMULA.match(cell) else cell for cell in cells]


@pytest.mark.parametrize(
    "text", ["orders", "a=b", "a-b", "  orders", "'orders'", "2026-01-01", "%RETRY%-g", '{"a":-1}', ""]
)
def test_plain(text: str) -> None:
    assert only(csv_line([text, "end"])) == [text, "end"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-5, "-5"),
        (-(10**30), "-1" + 30 * "0"),
        (-1.5, "-1.5"),
        (Decimal("-1.50"), "-1.50"),
        (None, ""),
        (True, "true"),
        ({"topic": "=1"}, '{"topic":"=1"}'),
        (["=1"], '["=1"]'),
    ],
)
def test_numbers_stay_numbers_and_objects_are_json(value: object, text: str) -> None:
    assert only(csv_line([value, 1])) == [text, "1"]


def test_what_would_begin_a_cell_where_commas_stand_in_numbers_is_quoted() -> None:
    assert csv_line(["a;=1", "b\t=1"]) == '"a;=1","b\t=1"\r\n'


def test_names_and_members_of_the_actor_are_guarded_too() -> None:
    text = csv_text(["=name", "user"], [{"=name": "@x", "actor": {"user": "=1"}}])
    assert list(csv.reader(io.StringIO(text))) == [["'=name", "user"], ["'@x", "'=1"]]


def test_the_console_has_the_same_rule() -> None:
    text = (ROOT / "api" / "console" / "static" / "table.js").read_text()
    (rule,) = re.findall(r"^const RISKY = /(.*)/;", text, re.MULTILINE)
    assert rule == FORMULA.pattern

# SPDX-License-Identifier: Apache-2.0
"""Generated blocks of the documentation: filling, and faults of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.reference.markdown import code, prose, sentence, table
from dev.reference.pages import check, filled

BLOCKS = {"fruit": lambda: "apple\n"}


def test_a_block_is_replaced_and_the_rest_stays() -> None:
    page = "# Page\n\n<!-- generated: fruit -->\nold\n<!-- end -->\n\nText.\n"
    wanted = "# Page\n\n<!-- generated: fruit -->\n\napple\n\n<!-- end -->\n\nText.\n"
    assert filled(page, BLOCKS) == wanted
    assert filled(wanted, BLOCKS) == wanted


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("<!-- generated: stone -->\n<!-- end -->\n", "no block 'stone'"),
        ("<!-- generated: fruit -->\n", "has no line '<!-- end -->'"),
    ],
)
def test_a_faulty_page_is_refused(page: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        filled(page, BLOCKS)


def test_a_block_without_a_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    assert check(tmp_path) == 1
    assert "no page shows the generated block 'tables'" in capsys.readouterr().err


def test_markdown() -> None:
    assert table(("a", "b"), [("1 | 2", "x\ny")]) == "| a | b |\n|---|---|\n| 1 \\| 2 | x y |\n"
    assert (code("x"), code("")) == ("`x`", "")
    assert (sentence("two\n words"), sentence("")) == ("Two words.", "")
    assert prose("``x``") == "`x`"

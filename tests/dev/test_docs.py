# SPDX-License-Identifier: Apache-2.0
"""`./routelake docs` refuses a broken link, with and without Sphinx; the index of the decisions has each record."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dev.docs import broken_links, build_site, with_decisions
from dev.peers.routelake import ROOT


def test_broken_links_are_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Two `words`, and more\n\n## Again\n\n## Again\n")
    good = "[a](other.md) [b](other.md#two-words-and-more) [c](other.md#again-1) [d](#here) [e](https://example.org/x)"
    in_code = "```\n[x](nowhere.md)\n```\n\n`[y](nowhere.md)`"
    page = f"# Here\n\n{good}\n\n{in_code}\n\n[x](gone.md)\n[y](other.md#again-2)\n[z](../outside.md)\n"
    (tmp_path / "page.md").write_text(page)
    assert broken_links(tmp_path) == [
        "page.md:11: gone.md: no such file",
        "page.md:12: other.md#again-2: no such heading",
        "page.md:13: ../outside.md: no such file",
    ]


def test_the_site_is_not_built_with_a_broken_link(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", source)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (source / "index.md").write_text("# Site\n\n- [A page](page.md)\n")
    (source / "page.md").write_text("# A page\n\nSee [the site](index.md#site).\n\n## A heading\n")
    assert build_site(source, tmp_path / "site") == 0
    assert "A heading" in (tmp_path / "site" / "page.html").read_text()
    (source / "page.md").write_text("# A page\n\nSee [the site](index.md#no-such-heading).\n")
    assert build_site(source, tmp_path / "site") == 1
    assert "page.md:3" in capfd.readouterr().err


def test_the_index_of_decisions_has_each_record_with_its_status(tmp_path: Path) -> None:
    page = "# Index\n\n| number | decision | status |\nold rows\n"
    (tmp_path / "0001-first.md").write_text("# 1. First\n\nStatus: superseded by [ADR 2](0002-second.md). More.\n")
    (tmp_path / "0002-second.md").write_text("# 2. Second\n\nStatus: accepted on 2026-01-01.\n")
    assert with_decisions(page, tmp_path).splitlines()[2:] == [
        "| number | decision | status |",
        "|---|---|---|",
        "| 1 | [First](0001-first.md) | superseded by [ADR 2](0002-second.md) |",
        "| 2 | [Second](0002-second.md) | accepted |",
    ]
    (tmp_path / "0003-third.md").write_text("# 3. Third\n\n## Context\n")
    with pytest.raises(ValueError, match=re.escape("0003-third.md does not begin")):
        with_decisions(page, tmp_path)


def pages_opened() -> dict[Path, int]:
    """Page -> number of pages that a reader opens to reach it. The README is the first."""
    opened = {ROOT / "README.md": 1}
    for page in (todo := list(opened)):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s:#]+\.md)", text):
            linked = (page.parent / target).resolve()
            if linked not in opened and linked.exists():
                opened[linked] = opened[page] + 1
                todo.append(linked)
    return opened


def test_each_question_is_answered_within_three_pages() -> None:
    report = ROOT / "reports" / "documentation-questions.md"
    rows = re.findall(
        r"^\| \w+ \| (.+?) \| \[[^\]]+\]\(([^)#]+).*?\) \| (\d) \|(?: [^|]+ \|)?$", report.read_text(), re.MULTILINE
    )
    opened = pages_opened()
    assert len(rows) == 2 * 36
    assert [(question, opened.get((report.parent / page).resolve())) for question, page, _ in rows] == [
        (question, int(count)) for question, _, count in rows
    ]
    assert all(int(count) <= 3 for _, _, count in rows)

# SPDX-License-Identifier: Apache-2.0
"""A release takes the fragments of `changes` into CHANGELOG.md; its own fragments can be taken."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from dev import changelog

HEAD = "# Changelog\n\n<!-- releases -->\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("how\n")
    (tmp_path / "CHANGELOG.md").write_text(HEAD)
    return tmp_path


def change(root: Path, name: str, text: str) -> None:
    (root / "changes" / name).write_text(text)


def test_the_newest_release_comes_first_and_takes_its_fragments(root: Path) -> None:
    change(root, "fixed-a-leak.md", "A leak\nis mended.\n")
    change(root, "added-b.md", "B.\n")
    changelog.release(root, "0.2.0", date(2026, 1, 2))
    first = "\n## 0.2.0 (2026-01-02)\n\n### Added\n\n- B.\n\n### Fixed\n\n- A leak is mended.\n"
    assert (root / "CHANGELOG.md").read_text() == HEAD + first
    change(root, "removed-c.md", "No C.")
    changelog.release(root, "0.3.0", date(2026, 1, 3))
    second = "\n## 0.3.0 (2026-01-03)\n\n### Removed\n\n- No C.\n"
    assert (root / "CHANGELOG.md").read_text() == HEAD + second + first
    assert [path.name for path in (root / "changes").iterdir()] == ["README.md"]


@pytest.mark.parametrize(("name", "text"), [("broken-x.md", "X."), ("added-x.txt", "X."), ("added-x.md", " \n")])
def test_a_fragment_that_is_not_one_is_named_and_nothing_is_taken(root: Path, name: str, text: str) -> None:
    change(root, "added-b.md", "B.\n")
    change(root, name, text)
    with pytest.raises(ValueError, match=name):
        changelog.release(root, "0.2.0", date(2026, 1, 2))
    assert (root / "CHANGELOG.md").read_text() == HEAD
    assert (root / "changes" / "added-b.md").exists()


def test_a_version_is_released_once_and_with_something_in_it(root: Path) -> None:
    with pytest.raises(ValueError, match="no fragment"):
        changelog.release(root, "0.2.0", date(2026, 1, 2))
    change(root, "added-b.md", "B.\n")
    changelog.release(root, "0.2.0", date(2026, 1, 2))
    change(root, "added-c.md", "C.\n")
    with pytest.raises(ValueError, match="already"):
        changelog.release(root, "0.2.0", date(2026, 1, 3))
    assert (root / "changes" / "added-c.md").exists()


def test_the_fragments_here_can_be_released() -> None:
    assert changelog.main(["--check"]) == 0

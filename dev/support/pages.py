# SPDX-License-Identifier: Apache-2.0
"""Code blocks of a how-to page: each is run by a test, or its page says why not.

A comment before a block, which readers do not see, says how it is tested::

    <!-- run by tests/e2e/backups.py -->            that file runs the block as it stands
    <!-- not run: needs systemd -->                 nothing runs it, for this reason

A block without a comment is run by ``tests/cli/test_how_to_pages.py``. A block of the language ``text`` is output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
OPERATE: Final = ROOT / "docs" / "how-to" / "operate"

_BLOCK: Final = re.compile(
    r"(?:^ *<!-- (?P<comment>[^\n]*) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A code block of a page.

    Attributes:
        page: the page.
        line: line of its first fence, from 1.
        language: after the fence; often empty.
        text: the code, without the indentation of the fence.
        comment: text of the comment before it; empty without one.
    """

    page: Path
    line: int
    language: str
    text: str
    comment: str

    @property
    def run_by(self) -> str:
        """Path of the test that runs the block; empty if no comment names one."""
        return self.comment.removeprefix("run by ") if self.comment.startswith("run by ") else ""

    @property
    def reason(self) -> str:
        """Reason why nothing runs the block; empty if something does."""
        return self.comment.removeprefix("not run: ") if self.comment.startswith("not run: ") else ""


def blocks(page: Path) -> Iterator[Block]:
    """Code blocks of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("indent")) + 1
        code = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        yield Block(page, line, found["language"], code, found["comment"] or "")


def run_by(page: Path, test: str) -> list[str]:
    """Text of the blocks of a page that a test says it runs.

    Args:
        page: the page.
        test: path of the test, from the root of the repository.
    """
    return [block.text for block in blocks(page) if block.run_by == test]

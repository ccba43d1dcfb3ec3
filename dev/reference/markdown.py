# SPDX-License-Identifier: Apache-2.0
"""Markdown that generated blocks are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with a line break at its end.

    Args:
        head: Titles of the columns.
        rows: Cells of each row, as many as titles.
    """
    lines = [" | ".join(head), "|".join("---" for _ in head)]
    written = [f"| {lines[0]} |", f"|{lines[1]}|"]
    written += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(written) + "\n"


def code(text: str) -> str:
    """Return text as code; nothing for no text."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Return text on one line that begins with a capital letter and ends with a full stop; nothing for no text."""
    line = " ".join(text.split()).rstrip(".")
    return line[:1].upper() + line[1:] + "." if line else ""


def prose(docstring: str) -> str:
    """Return a docstring's text as Markdown: code has one backquote on each side."""
    return docstring.replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

# SPDX-License-Identifier: Apache-2.0
"""Each `routelake` command that a page shows exists, and so does each option it is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.main import app
from dev.docs import markdown_files
from dev.peers.routelake import ROOT

PAGES = [
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *markdown_files(ROOT / "docs")]
    if "adr" not in path.parts
]
_FENCE = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|\s|/)routelake ((?!is |env )[a-z].*)")


def commands(page: str) -> Iterator[list[str]]:
    """The words that follow `routelake` in the page's code, up to a comment, a pipe or another command."""
    for block in _FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r" *(\$ |\./routelake )", line) and (found := _COMMAND.search(line)):
                words = shlex.shlex(found[1], posix=True, punctuation_chars="|;&<>()")
                words.whitespace_split = True
                yield list(takewhile(lambda word: word.strip("|;&<>()"), words))


def misused(words: list[str]) -> list[str]:
    """What of a command line routelake does not know."""
    here: Any = typer.main.get_command(app)
    words = [*words]
    while words and hasattr(here, "get_command") and not words[0].startswith("-"):
        word = words.pop(0)
        here = here.get_command(here.make_context("routelake", [], resilient_parsing=True), word)
        if here is None:
            return [word]
    if here.context_settings.get("ignore_unknown_options"):
        return []
    known = {option for parameter in here.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return [option for option in given if option not in known | {"--help", "-h"}]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_a_page_exist(path: Path) -> None:
    found = [(words, misused(words)) for words in commands(path.read_text(encoding="utf-8"))]
    wrong = [(words, unknown) for words, unknown in found if unknown]
    assert not wrong


def test_what_does_not_exist_is_found() -> None:
    page = (
        "```\n$ ./routelake serve --no-such-option\n./routelake history nothing | wc -l\n./routelake serve --http :1\n"
    )
    page += "./routelake sql 'SELECT 1 > 0' --no-option # --none\n```\n"
    assert [misused(words) for words in commands(page)] == [["--no-such-option"], ["nothing"], [], ["--no-option"]]
    assert sum(1 for path in PAGES for _ in commands(path.read_text(encoding="utf-8"))) > 60

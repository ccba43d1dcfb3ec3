# SPDX-License-Identifier: Apache-2.0
"""Sphinx builds the site from the Markdown pages with this. Run it with `./routelake docs`.

The pages are plain Markdown, so that they read as well on GitHub. Two things are added while Sphinx reads them:
navigation (the pages that an index page links to, in its order) and links to files outside of docs/.
"""

from __future__ import annotations

import os
import re
import tomllib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import jupyter_client
from jupyter_core.paths import jupyter_runtime_dir
from pygments.lexers.python import PythonLexer
from pygments.lexers.special import TextLexer
from pygments.lexers.sql import SqlLexer
from traitlets import CaselessStrEnum

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_DOCS = Path(__file__).resolve().parent
_ROOT = _DOCS.parent
_SOURCE_URL = os.environ.get("ROUTELAKE_DOCS_SOURCE_URL", "").rstrip("/")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:]+)\)")

_LEXERS = {"http": TextLexer, "haproxy": TextLexer, "spark-sql": SqlLexer, "duckdb": PythonLexer}

project = "routelake"
author = "the routelake contributors"
release = version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "force"  # a notebook shows what it computes now, from the sample data directory
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
highlight_language = "text"  # a block without a language is a command, or what it prints
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
html_theme = "pydata_sphinx_theme"
html_title = "routelake"
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_nav_level": 2,
    "footer_start": ["sphinx-version"],
    "footer_end": ["theme-version"],
}
html_sidebars = {"index": []}


class _LocalKernelManager(jupyter_client.AsyncKernelManager):
    """Connects to the kernels of notebooks by Unix sockets. On a TCP port, a kernel warns that others can read it."""

    transport = CaselessStrEnum(["ipc"], default_value="ipc")

    def _ip_default(self) -> str:
        """Beginning of the paths of its sockets. Pages are built in parallel, so each kernel has its own."""
        return f"{jupyter_runtime_dir()}/{uuid.uuid4().hex}"


jupyter_client.AsyncKernelManager = _LocalKernelManager  # nbclient's default, which no option of myst-nb replaces


def _complete(app: Sphinx, document: str, content: list[str]) -> None:
    """Add navigation to an index page, and lead links that leave docs/ to the repository."""
    page = _DOCS / f"{document}.md"
    if page.name == "index.md":
        pages = dict.fromkeys(path.removesuffix(".md") for path in _pages_below(page, content[0]))
        content[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"

    def outside(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        file = (page.parent / target.partition("#")[0]).resolve()
        if image or file.is_relative_to(_DOCS):
            return match[0]
        path = file.relative_to(_ROOT)
        return f"[{text}]({_SOURCE_URL}/{path})" if _SOURCE_URL else text if f"{path}" in text else f"{text} (`{path}`)"

    content[0] = _LINK.sub(outside, content[0])


def _pages_below(page: Path, text: str) -> list[str]:
    """Links of an index page to pages below its folder, and to the index page of a folder next to it."""
    targets = [match[3].partition("#")[0] for match in _LINK.finditer(text)]
    return [
        target
        for target in targets
        if target.endswith(".md") and (not target.startswith("..") or target == "../adr/index.md")
    ]


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", _complete)
    # languages of code blocks that the tests of the pages tell apart, and Pygments does not know
    for language, lexer in _LEXERS.items():
        app.add_lexer(language, lexer)

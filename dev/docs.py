# SPDX-License-Identifier: Apache-2.0
"""`routelake docs`: builds the documentation as a site. A warning of Sphinx or a broken link is an error.

The links of all Markdown files are checked without Sphinx, so that `routelake check` does it in a second. Sphinx is
installed into an environment of its own, because no other command needs it. Sphinx executes the notebooks. They read a
sample data directory, which is written before.

Commands::

    python -m dev.docs            check the links, then build the site into build/docs
    python -m dev.docs --check    check the links and the index of the decisions
    python -m dev.docs --fix      write the index of the decisions
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).resolve().parent.parent
SITE: Final = ROOT / "build" / "docs"
SAMPLE: Final = ROOT / "build" / "docs-sample"
_ENVIRONMENT: Final = ROOT / "build" / "docs-env"
_LOCK: Final = ROOT / "requirements-docs.lock"
_NOT_OURS: Final = frozenset({".venv", "build", "data", ".git"})

_FENCE: Final = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ANCHOR: Final = re.compile(r'<a (?:id|name)="([^"]+)"')


def broken_links(root: Path) -> list[str]:
    """Check each relative link and each anchor in the Markdown files below a folder.

    Args:
        root: the folder; a link that leaves it is broken.

    Returns:
        One line for each broken link, with its file and line.
    """
    anchors: dict[Path, frozenset[str]] = {}
    broken = []
    for page in markdown_files(root):
        # the fragments in changes/ become the changelog, which is in the root
        fragment = page.parent == root / "changes" and page.name != "README.md"
        folder = root if fragment else page.parent
        for line, target in _links(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            file = (folder / unquote(path)).resolve() if path else page
            place = f"{page.relative_to(root)}:{line}: {target}"
            if not file.is_relative_to(root) or not file.exists():
                broken.append(f"{place}: no such file")
            elif anchor and file.suffix == ".md":
                if file not in anchors:
                    anchors[file] = frozenset(_anchors(file.read_text(encoding="utf-8")))
                if anchor not in anchors[file]:
                    broken.append(f"{place}: no such heading")
    return broken


def markdown_files(root: Path) -> Iterator[Path]:
    """Markdown files below a folder, without those of an environment or a build."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NOT_OURS)
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(".md"))


def _links(text: str) -> Iterator[tuple[int, str]]:
    """Relative links of a page outside of code, with their line."""
    prose = _CODE.sub(_blank, _FENCE.sub(_blank, text))
    for match in _LINK.finditer(prose):
        if not re.match(r"[a-z]+:", match[1]):
            yield prose.count("\n", 0, match.start()) + 1, match[1]


def _blank(match: re.Match[str]) -> str:
    """Nothing but the line breaks of a piece of code."""
    return "\n" * match[0].count("\n")


def _anchors(text: str) -> Iterator[str]:
    """Anchors of a page, spelled as GitHub and MyST do; a repeated heading gets a number."""
    text = _FENCE.sub(_blank, text)
    yield from _ANCHOR.findall(text)
    seen: dict[str, int] = {}
    for match in _HEADING.finditer(text):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{count}" if count else slug


def check_links(root: Path = ROOT) -> int:
    """Print each broken link; returns 1 if there is one."""
    broken = broken_links(root)
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


def with_decisions(page: str, folder: Path) -> str:
    """Replace the table of an index page by one with a row for each decision record.

    Args:
        page: text of the index page.
        folder: folder of the records.

    Raises:
        ValueError: a record has no status, or the page has no table.
    """
    rows = ["| number | decision | status |", "|---|---|---|"]
    for path in sorted(folder.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.match(r"# (\d+)\. (.+)\n\nStatus: (superseded by \[[^\]]+\]\([^)]+\)|\w+)", text)
        if found is None:
            raise ValueError(f"{path.name} does not begin with '# N. TITLE', an empty line and 'Status: accepted'.")
        rows.append(f"| {found[1]} | [{found[2]}]({path.name}) | {found[3]} |")
    before, table, _ = page.partition(rows[0])
    if not table:
        raise ValueError(f"The index page has no line {rows[0]!r}.")
    return before + "\n".join(rows) + "\n"


def check_decisions(*, write: bool = False) -> int:
    """Compare the index of the decisions with the records, or write it; returns 1 if it differs."""
    folder = ROOT / "docs" / "adr"
    index = folder / "index.md"
    page = index.read_text(encoding="utf-8")
    wanted = with_decisions(page, folder)
    if write:
        index.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print("docs/adr/index.md is not up to date. Run ./routelake fix.", file=sys.stderr)
        return 1
    return 0


def build_site(source: Path = ROOT / "docs", site: Path = SITE) -> int:
    """Build the site with Sphinx; returns its exit code, which is 1 after a warning.

    Args:
        source: folder with `conf.py` and the pages.
        site: folder of the HTML files.
    """
    python = _prepare_environment()
    command = [str(python), "-m", "sphinx", "-E", "-W", "--keep-going", "-q", "-j", "auto"]
    with tempfile.TemporaryDirectory(
        prefix="routelake-docs-"
    ) as runtime:  # short, because it has the kernels' Unix sockets
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROUTELAKE_DATA_DIR": str(SAMPLE),
            "JUPYTER_RUNTIME_DIR": runtime,
        }
        doctrees = site.with_name(f"{site.name}-doctrees")
        return subprocess.run(
            [*command, "-d", str(doctrees), str(source), str(site)], env=environment, check=False
        ).returncode


def _prepare_environment() -> Path:
    """Install the locked packages where they are missing; returns the environment's Python."""
    python = _ENVIRONMENT / "bin" / "python"
    uv = [str(Path(sys.executable).parent / "uv")]
    if not python.exists():
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(_ENVIRONMENT)], check=True)
    install = ["pip", "sync", "-q", "--require-hashes", "--python", str(python), str(_LOCK)]
    subprocess.run([*uv, *install], check=True)
    return python


def build_docs() -> int:
    """Check the links, then build the site; returns 0 if both are without fault."""
    from dev.sample_lake import write_sample  # the other commands start in a second, because they do not import this

    code = check_links()
    if code == 0:
        shutil.rmtree(SAMPLE, ignore_errors=True)
        write_sample(SAMPLE)
        code = build_site()
    if code == 0:
        print(f"built {SITE.relative_to(ROOT) / 'index.html'}")
    return code


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands."""
    if "--fix" in arguments:
        return check_decisions(write=True)
    if "--check" in arguments:
        return check_links() | check_decisions()
    return build_docs()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""The rules of language that a program can check: words to avoid, shape of sentences, subjects of commits.

Words are checked in documents, in the product's texts (help, errors, log messages), and in docstrings and comments.
Sentences are checked in documents.

Run ``python -m dev.language``. It prints each place that breaks a rule, and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dev.docs import ROOT, markdown_files
from dev.reference.source import product_modules, template

WORDS: Final = {
    r"whoever|whomever": "name the person or the program",
    r"whose": "say 'of the ...', or begin another sentence",
    r"nobody|somebody": "name the role: operator, client, peer, process",
    r"anew": "again",
    r"besides?": "next to, in addition to",
    r"came to nothing|is none": "failed, does not exist",
    r"made good|mended": "repaired, fixed",
    r"give[sn]? way|gave way": "is evicted, is closed first",
    r"stands? at": "is",
    r"(?:is|are|was|were|be) told": "receives, is notified",
    r"signs? of life": "heartbeat",
    r"(?:falls?|fell|fallen|falling) silent": "misses heartbeats, expires",
    r"cut off": "interrupted, truncated or partitioned",
    r"of then|of before": "at that time, previous",
    r"back-ups?": "backup (noun), back up (verb)",
}
"""Words to avoid -> words to use."""

_WORDS: Final = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): advice for words, advice in WORDS.items()}
_MOST_WORDS: Final = 40
_MOST_SUBJECT: Final = 72
_SUBJECTS_SINCE: Final = "2026-11-26T00:00:00Z"
"""Commits before this time are older than the rule."""
_SUBJECT: Final = re.compile(r"[\w./+*, -]+: \S.*[^.]")

_GENERATED: Final = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
_FENCE: Final = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)\n]*\)")
_ITEM: Final = re.compile(r" *(?:[-*] |\d+\. )")
_LINES_WITHOUT_SENTENCES: Final = ("|", "#", "<", "---", ":::", "[")


class Fault(NamedTuple):
    """One place that breaks a rule. ``rule`` is words or sentences."""

    rule: str
    file: str
    line: int
    text: str


def faults_of_document(file: str, text: str) -> Iterator[Fault]:
    """Check a Markdown file outside of code and generated blocks.

    Args:
        file: Name of the file, for the faults.
        text: Text of the file.
    """
    text = _FENCE.sub(_blank, _GENERATED.sub(_blank, _FRONT_MATTER.sub(_blank, text)))
    text = _CODE.sub(lambda found: "x" + "\n" * found[0].count("\n"), text)
    text = _LINK.sub(r"\1", text)
    for number, line in enumerate(text.splitlines(), 1):
        yield from _words(file, number, line)
    for number, sentence in _sentences(text):
        yield from (Fault("sentences", file, number, problem) for problem in problems_of_sentence(sentence))


def problems_of_sentence(sentence: str) -> Iterator[str]:
    """Return what is wrong with the shape of one sentence."""
    beginning = " ".join(sentence.split()[:8])
    if (count := len(re.findall(r"[\w'-]+", sentence))) > _MOST_WORDS:
        yield f"'{beginning} ...': {count} words; write at most {_MOST_WORDS}, better 25"
    if (count := len(re.findall(r":(?=\s|$)", sentence))) > 1:
        yield f"'{beginning} ...': {count} colons; write at most one"
    if ";" in sentence:
        yield f"'{beginning} ...': a semicolon; write two sentences or a list"


def faults_of_product() -> Iterator[Fault]:
    """Check the texts of the product: string constants of at least four words that are no docstrings."""
    for path, tree in product_modules():
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstrings | parts:
                text = template(node)
                if text and text.count(" ") > 2:
                    yield from _words(str(path), node.lineno, text)


def faults_of_code(file: str, source: str) -> Iterator[Fault]:
    """Check the docstrings and comments of a Python file.

    Args:
        file: Name of the file, for the faults.
        source: Its text.
    """
    if not any(_words(file, 0, source)):
        return  # to parse all files takes seconds
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                yield from _words(file, number, lines[number - 1])
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _words(file, token.start[0], token.string)


def faults_of_subject(subject: str) -> str:
    """Return what is wrong with the subject of a commit; empty for nothing."""
    if len(subject) > _MOST_SUBJECT:
        return f"{len(subject)} characters; write at most {_MOST_SUBJECT}"
    return "" if _SUBJECT.fullmatch(subject) else "write 'area: imperative summary', without a full stop"


def all_faults() -> list[Fault]:
    """Check every document, the product's texts, and all code."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *markdown_files(ROOT / "docs")]
    found = list(faults_of_product())
    for page in pages:
        if "adr" not in page.parts:
            found += faults_of_document(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if not name.parts[0].startswith(".") and name.parts[0] != "build":
            found += faults_of_code(str(name), path.read_text(encoding="utf-8"))
    return found


def _words(file: str, line: int, text: str) -> Iterator[Fault]:
    for words, advice in _WORDS.items():
        for match in words.finditer(text):
            if match[0].endswith("None"):
                continue  # the constant of Python
            yield Fault("words", file, line, f"'{match[0]}' is a word to avoid: {advice}")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences of a page with their lines; a list item begins another one, and so does an empty line."""
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_other = not line.strip() or line.lstrip().startswith(_LINES_WITHOUT_SENTENCES)
        if block and (is_other or _ITEM.match(line)):
            yield from _split(first, block)
            block = []
        if not is_other:
            first = first if block else number
            block.append(_ITEM.sub("", line, count=1))


def _split(first: int, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    text = "\n".join(lines)
    start = 0
    for end in [*(match.end() for match in re.finditer(r"[.!?](?=\s|$)", text)), len(text)]:
        sentence = text[start:end]
        if sentence.strip():
            yield first + text.count("\n", 0, start + len(sentence) - len(sentence.lstrip())), sentence
        start = end


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _bad_subjects() -> list[str]:
    asked = subprocess.run(
        ["git", "log", "--no-merges", f"--since={_SUBJECTS_SINCE}", "--format=%h %s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    pairs = (line.partition(" ") for line in asked.stdout.splitlines())  # nothing without git
    return [f"commit {key}: {subject!r}: {fault}" for key, _, subject in pairs if (fault := faults_of_subject(subject))]


def main() -> int:
    """Print every fault; returns the exit code."""
    lines = [f"{one.file}:{one.line}: {one.text}" for one in all_faults()] + _bad_subjects()
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Rules of language: each fault is found with its line, allowances only become smaller."""

from __future__ import annotations

import tomllib

import pytest

from dev.docs import ROOT
from dev.language import ALLOWANCES, Fault, faults_of_document, faults_of_subject, lowered, over, problems_of_sentence

PAGE = """# Nobody

<!-- generated: x -->
somebody; generated
<!-- end -->

First sentence. The second one is
made anew: it has; a semicolon.

- An item: one `a; b` colon: two.
- An item with a time 02:55 and [a: link](whose.md).

```
nobody; here
```
"""


def test_faults_of_a_document_have_their_lines() -> None:
    found = [(fault.rule, fault.line) for fault in faults_of_document("page.md", PAGE)]
    assert found == [("words", 1), ("words", 8), ("sentences", 7), ("sentences", 10)]


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("word " * 41, "41 words"),
        ("a: b: c", "2 colons"),
        ("a; b", "a semicolon"),
    ],
)
def test_shape_of_a_sentence(sentence: str, fault: str) -> None:
    (found,) = problems_of_sentence(sentence)
    assert fault in found
    assert not list(problems_of_sentence("One idea: this one."))


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("docs: split the page about operations", ""),
        ("api/http: name If-None-Match", ""),
        ("Split the page", "area: imperative summary"),
        ("docs: split the page.", "without a full stop"),
        (f"docs: {'x' * 70}", "at most 72"),
    ],
)
def test_subjects_of_commits(subject: str, fault: str) -> None:
    assert (fault in faults_of_subject(subject)) if fault else not faults_of_subject(subject)


def test_an_allowance_is_lowered_and_never_raised() -> None:
    found = [Fault("words", "a.md", line, "anew") for line in (1, 2)]
    assert over(found, {"words": {"a.md": 2}}) == []
    assert over(found, {"words": {"a.md": 1}})[0] == "a.md: 2 faults of rule 'words', 1 allowed:"
    text = lowered(found, {"words": {"a.md": 5, "gone.md": 3}, "sentences": {"a.md": 1}})
    assert tomllib.loads(text) == {"words": {"a.md": 2}, "sentences": {}}
    assert tomllib.loads(lowered(found, {"words": {"a.md": 1}})) == {"words": {"a.md": 1}}


def test_files_with_allowances_exist() -> None:
    allowed = tomllib.loads(ALLOWANCES.read_text(encoding="utf-8"))
    assert set(allowed) == {"words", "sentences"}
    assert all((ROOT / file).exists() for files in allowed.values() for file in files)

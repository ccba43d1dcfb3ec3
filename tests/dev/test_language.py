# SPDX-License-Identifier: Apache-2.0
"""Rules of language: each fault is found with its line."""

from __future__ import annotations

import pytest

from dev.language import faults_of_code, faults_of_document, faults_of_subject, problems_of_sentence

PAGE = """---
key: a: b: c
---
# Nobody

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
    assert found == [("words", 4), ("words", 11), ("sentences", 10), ("sentences", 13)]


def test_faults_of_code_are_those_of_docstrings_and_comments() -> None:
    source = '"""One line.\n\nNobody reads it.\n"""\nx = None  # whose value is None\ny = "nobody"\n'
    assert [(fault.rule, fault.line) for fault in faults_of_code("x.py", source)] == [("words", 3), ("words", 5)]


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

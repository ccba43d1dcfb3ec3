# SPDX-License-Identifier: Apache-2.0
"""Vendored libraries are whole, licensed, and may run under the console's policy."""

from __future__ import annotations

import hashlib
import re

from api.http.routes_console import VENDOR_DIR, read_files

LISTED = dict(
    re.findall(
        r"^\| (\S+) \| [^|]+ \| [^|]+ \| `([0-9a-f]{64})` \|$", (VENDOR_DIR / "README.md").read_text(), re.MULTILINE
    )
)


def test_every_file_is_what_the_list_says() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR_DIR.iterdir()}
    del found["README.md"]
    assert found == LISTED


def test_licences_are_there_and_are_not_served() -> None:
    assert "MIT License" in (VENDOR_DIR / "LICENSE.uPlot").read_text()
    assert read_files(VENDOR_DIR).keys() == LISTED.keys() - {"LICENSE.uPlot"}


def test_a_library_makes_no_code_or_html_of_text_and_asks_nobody() -> None:
    for path in VENDOR_DIR.glob("*.js"):
        text = path.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "fetch(",
            "XMLHttpRequest",
            "import(",
        ):
            assert word not in text, (path.name, word)

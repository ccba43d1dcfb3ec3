# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, Debian's, driven by playwright."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = os.environ.get("ROUTELAKE_TEST_CHROMIUM") or shutil.which("chromium")
"""apt-get install chromium; playwright's own download is not used."""
_PATIENCE_MS = 30_000
"""Machines are busy; playwright's five seconds are not enough."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Without a browser, the tests that need it are skipped with the reason."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and all that it did which it should not: errors, refusals of its policy, failed and foreign requests.

    Attributes:
        refusals: Statuses of answers that a test provokes.
    """

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.url = url
        self._context = browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **context)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(_PATIENCE_MS)
        self.wrong: list[str] = []
        self.refusals: set[int] = set()
        self._loads = 0
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        if message.type == "error" and not self._is_provoked(message.text):
            self.wrong.append(f"console: {message.text} {message.location.get('url', '')}")

    def _is_provoked(self, text: str) -> bool:
        failed = re.match(r"Failed to load resource: the server responded with a status of (\d+)", text)
        return failed is not None and int(failed[1]) in self.refusals

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "blob:" + self.url, "data:")):
            self.wrong.append(f"asked {request.url}")

    def go(self, place: str) -> Page:
        """Open the console at an address behind its #."""
        self._loads += 1  # in the address, so that the page is loaded again
        self.page.goto(f"{self.url}/console/?{self._loads}#/{place}")
        self.page.wait_for_selector("main:not([aria-busy]) h1")
        return self.page

    def close(self) -> None:
        self._context.close()
        assert not self.wrong, self.wrong


def picture(page: Page, path: Path) -> None:
    """A screenshot, for the documentation or to see the page of a test."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)

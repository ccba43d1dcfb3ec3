# SPDX-License-Identifier: Apache-2.0
"""Two hours in the life of 30 brokers and 500 topics, in the console: what each page shows of it; pictures for the docs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from dev.support.browser import Watched, picture
from dev.support.local import LocalGateway

pytestmark = pytest.mark.deep

PICTURES = os.environ.get("ROUTELAKE_TEST_PICTURES")
"""A folder; with it pictures of every page are made there, of which docs/how-to/integrate/console.md shows some."""
PLACES: Final = {
    "dashboard": ("dashboard", "broker-"),
    "cluster": ("cluster", "0(master)"),
    "lifelines": ("lifelines", "expired"),
    "topic": ("topics", "topic-00"),
    "router": ("topic/topic-100", "broker-05"),
    "router-then": ("topic/topic-100?as_of=60", "broker-05"),
    "history": ("history/topic-100", "WIPE_WRITE_PERM_OF_BROKER"),
    "history-of-broker": ("history/broker-29?of=broker", "BROKER_EXPIRED"),
    "compare": ("compare?from=60", "only later"),
    "audit-log": ("audit?user=alice", "alice"),
    "ops": ("ops", "Self-preservation"),
}
SIZES: Final = {"wide": (1280, 800), "small": (390, 800)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_of_a_life(browser: Browser, lived: LocalGateway, scheme: str, size: str) -> None:
    width, height = SIZES[size]
    tab = Watched(
        browser, lived.http_url, color_scheme=scheme, viewport={"width": width, "height": height}, bypass_csp=True
    )
    for name, (place, text) in PLACES.items():
        page = tab.go(place)
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("#notice")).to_be_empty()
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, f"{name} is {beyond} pixels wider than the window"
        if PICTURES:
            expect(page.locator(".when")).to_contain_text("UTC")
            picture(page, Path(PICTURES) / f"{name}-{size}-{scheme}.png")
    tab.close()

# SPDX-License-Identifier: Apache-2.0
"""A change in full beside its table: by keyboard, in the address, with what else the same client changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from dev.support.browser import Watched
from dev.support.http_api import broker
from tests.api.console.conftest import Console

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("panel"))
    found.send("POST", "/v1/brokers/register", broker("broker-a", topics=("orders", "payments")))
    found.send("POST", "/v1/brokers/broker-a/wipe-write-perm")
    yield found
    found.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_before_and_after_are_beside_each_other(browser: Browser, console: Console, scheme: str, width: int) -> None:
    tab = Watched(browser, console.url, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page = tab.go("audit?command=WIPE_WRITE_PERM_OF_BROKER&tableName=topicQueueTable")
    row = page.locator("main tr[data-key]").first
    opener = row.locator("button.open")
    opener.focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="The change in full")
    expect(panel.locator("h2")).to_be_focused()
    sides = panel.locator("table.sides").first.locator("tbody tr")
    expect(sides).to_have_count(1)
    assert [" ".join(text.split()) for text in sides.locator("th, td").all_inner_texts()] == [
        "perm",
        "6 (RW)",
        "4 (R-)",
    ]
    panel.get_by_text("3 unchanged fields").click()
    expect(panel.locator("table.sides").nth(1)).to_contain_text("readQueueNums")
    expect(panel).to_contain_text("127.0.0.1:")
    expect(panel).to_contain_text("applied")
    expect(panel).to_contain_text("Other changes from 127.0.0.1")
    expect(panel.locator(".others").last).to_contain_text("REGISTER_BROKER")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    found = Axe().run(page).response["violations"]
    assert not [(each["id"], each["nodes"][:2]) for each in found if each["impact"] in ("serious", "critical")]
    shared = page.url
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(opener).to_be_focused()
    page.goto("about:blank")
    page.goto(shared)  # as a colleague would
    expect(panel.locator("h2")).to_have_text("WIPE_WRITE_PERM_OF_BROKER")
    tab.close()


def test_a_difference_in_full(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("compare?from=1")
    page.locator("main tr[data-key] button.open").first.click()
    panel = page.get_by_role("complementary", name="The change in full")
    expect(panel.locator("table.sides").first).to_contain_text("no row")
    panel.get_by_role("button", name="Close the panel").click()
    expect(panel).to_be_hidden()
    tab.close()

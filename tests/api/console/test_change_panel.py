# SPDX-License-Identifier: Apache-2.0
"""A change in full next to its table: by keyboard, in the address, with the other changes of the same client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from dev.support.browser import Watched
from dev.support.http_api import broker
from tests.api.console.conftest import Console

pytestmark = pytest.mark.deep

MORE_TOPICS = 30
"""So many that the rows of one command fill any short list of changes."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("panel"))
    topics = ("orders", "payments", *(f"topic-{number:02}" for number in range(MORE_TOPICS)))
    found.send("POST", "/v1/brokers/register", broker("broker-a", topics=topics))
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
    expect(row).to_have_attribute("aria-current", "true")
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
    expect(page.locator("main tr[aria-current]")).to_have_count(0)
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


def test_a_command_is_one_line_with_all_of_its_rows(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("audit?command=REGISTER_BROKER")
    rows = page.locator("main tbody tr[data-key]")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("broker-a: ")
    expect(rows).to_contain_text(f" and {MORE_TOPICS + 1} more")
    expect(rows.locator("button.open")).to_contain_text(f"+{MORE_TOPICS + 2} topicQueueTable")
    rows.locator("button.open").click()
    panel = page.get_by_role("complementary", name="The change in full")
    for table in ("topicQueueTable", "brokerAddrTable", "clusterAddrTable", "brokerLiveTable"):
        expect(panel.get_by_role("heading", name=f"Added: {table}")).to_be_visible()
    expect(panel).to_contain_text(f"The same for {MORE_TOPICS + 2} topics")
    page.get_by_label("Filter Audit Log").fill(f"topic-{MORE_TOPICS - 1}")
    expect(rows).to_have_count(1)  # a line is found by each of its topics
    page.get_by_label("Filter Audit Log").fill("")
    page.get_by_label("each row").check()
    expect(page.locator(".count")).to_have_text(str(MORE_TOPICS + 2 + 3))
    tab.close()


@pytest.mark.parametrize("place", ["audit", "history/orders", "dashboard"])
def test_no_column_of_changes_is_beyond_1280_pixels(browser: Browser, console: Console, place: str) -> None:
    tab = Watched(browser, console.url, viewport={"width": 1280, "height": 900})
    page = tab.go(place)
    box = page.get_by_role(
        "region",
        name="Changes" if place.startswith("history") else "Last changes" if place == "dashboard" else "Audit Log",
        exact=True,
    )
    expect(box.locator("tr[data-key]").first).to_be_visible()
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    tab.close()

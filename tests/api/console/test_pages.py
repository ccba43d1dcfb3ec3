# SPDX-License-Identifier: Apache-2.0
"""Every page of the console, empty and full, now and then, light and dark, wide and narrow.

No request fails, axe finds nothing serious, nothing is wider than the window, and each text that is too long for its cell can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from api.http.routes_console import STATIC_DIR
from dev.support.browser import Watched
from dev.support.http_api import broker
from lake.history.reports import REPORTS
from tests.api.console.conftest import Console

pytestmark = pytest.mark.deep

LONG = "a-topic-with-a-name-of-many-characters-" + "x" * 80
"""A topic. Its registration has a zone and a cluster that are as long."""
PAGES = (
    *("dashboard", "cluster", "lifelines", "topics", "topic/orders", f"topic/{LONG}", "history/orders"),
    *("history/broker-a?of=broker", "compare?from=1", "compare", "audit", "ops", "ops?namespace=never", "reports"),
    *(f"reports/{report.name}" for report in REPORTS),
    *("topic/never", "history/never", "history/never?of=broker", "topic/refunds?from=1"),
)
SIZES = {"wide": (1280, 900), "narrow": (390, 800)}
THEN = 2
ALIVE: dict[str, Any] = {"heartbeatTimeoutMillis": 3_600_000}
"""No broker expires, however long the pages take."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("pages"))
    first = broker("broker-a", topics=("orders", "payments", LONG), zoneName="zone-" + "z" * 60, **ALIVE)
    found.send("POST", "/v1/brokers/register", first)
    found.send("POST", "/v1/brokers/register", broker("broker-b", topics={"orders": 4, "refunds": 4}, host=2, **ALIVE))
    found.send("POST", "/v1/brokers/broker-b/wipe-write-perm")
    found.send("PUT", "/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8;" * 20})
    found.send("PUT", f"/v1/kv/ORDER_TOPIC_CONFIG/{LONG}", {"value": "broker-a:8"})
    found.send("DELETE", "/v1/topics/payments")
    yield found
    found.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("empty"))
    yield found
    found.close()


def test_the_list_has_every_page() -> None:
    found = re.search(r"const PAGES = \{(.*?)\n\};", (STATIC_DIR / "pages.js").read_text(), re.DOTALL)
    assert found is not None
    assert set(re.findall(r"^  (\w+):", found[1], re.MULTILINE)) == {re.split(r"[/?]", place)[0] for place in PAGES}


def at(place: str, **parameters: object) -> str:
    """The place with more parameters."""
    more = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"{place}{'&' if '?' in place else '?'}{more}" if more else place


WIDE = """() => [...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth && !each.closest(".scroll")).map((each) => each.outerHTML.slice(0, 80))"""


def sound(page: Page, place: str) -> None:
    """Nothing is wider than the window, and axe finds nothing serious."""
    beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert beyond <= 0, f"{place} is {beyond} pixels wider than the window: {page.evaluate(WIDE)}"
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, (place, [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in serious])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_request_fails_on_a_full_gateway(browser: Browser, console: Console, scheme: str, size: str) -> None:
    width, height = SIZES[size]
    tab = Watched(
        browser, console.url, color_scheme=scheme, viewport={"width": width, "height": height}, bypass_csp=True
    )
    for place in PAGES:
        page = tab.go(place)
        expect(page.locator("#notice")).to_be_empty()
        expect(page.locator(".about")).not_to_be_empty()
        sound(page, place)
        if scheme == "light":
            page = tab.go(at(place, as_of=THEN))
            expect(page.locator("#notice")).to_be_empty()
            expect(page.locator("#banner")).to_contain_text(f"epoch {THEN}")
            expect(page.locator("main .danger:visible")).to_have_count(0)
    tab.close()


def test_no_request_fails_if_a_name_is_not_there(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("ops?namespace=never")
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_role("button", name="Put…").click()
    expect(page.get_by_role("dialog")).to_contain_text("What will be different")
    page.keyboard.press("Escape")
    page = tab.go(f"topic/never?from=1&as_of={THEN}")
    expect(page.locator("main")).to_contain_text("No topic route info for never")
    page = tab.go("topic/refunds?from=1")  # it was not there then
    expect(page.locator("main")).to_contain_text("Difference from")
    tab.close()


def test_no_request_fails_on_an_empty_gateway_and_each_table_says_what_to_do(browser: Browser, empty: Console) -> None:
    tab = Watched(browser, empty.url, bypass_csp=True)
    for place in PAGES:
        if "from=1" in place:
            continue  # there is no epoch 1
        page = tab.go(place)
        expect(page.locator("#notice")).to_be_empty()
        for table in page.locator("main .table:visible").all():
            if table.locator("tbody tr[data-key]").count() == 0:
                expect(table.locator(".empty")).to_have_text(re.compile(r"\.$"))
                assert table.locator(".empty").inner_text() != "There are no rows.", place
        sound(page, place)
    tab.close()


UNREADABLE = """() => [...document.querySelectorAll("main .table:not([hidden]) td, main .table th button, main .plain td, main .facts dd")]
  .filter((cell) => cell.clientWidth && cell.scrollWidth > cell.clientWidth && !cell.querySelector(".whole, .open"))
  .map((cell) => cell.textContent)"""
"""Texts that are too long for their cell, without a button that shows them."""
TRIES = 25


def test_a_text_that_is_too_long_for_its_cell_has_a_way_to_read_it(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url, viewport={"width": 1280, "height": 900})
    for place in PAGES:
        page = tab.go(place)
        unreadable = [""]
        for _ in range(TRIES):
            page.wait_for_timeout(200)
            unreadable = page.evaluate(UNREADABLE)
            if not unreadable:
                break
        assert not unreadable, place
    page = tab.go("topics")
    button = page.locator("tr", has_text="a-topic-with").get_by_role("button", name="Show in full: topicName")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="topicName")).to_contain_text(LONG)
    console.send("POST", "/v1/brokers/register", broker("broker-c", topics=("new-1", "new-2"), host=3))
    expect(page.locator("tr[data-key=new-1]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    console.send("POST", "/v1/brokers/register", broker("broker-d", topics=("new-3", "new-4"), host=4))
    expect(page.locator("tr[data-key=new-3]")).to_be_visible()
    expect(button).to_be_focused()
    tab.close()


def test_a_filter_without_a_match_says_so(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("cluster")
    page.get_by_label("Filter Brokers").fill("never")
    expect(page.locator(".empty:visible")).to_have_text("No row matches the filter. ")
    tab.close()


def test_a_topic_that_was_deleted_is_a_link_away_from_the_client_that_deleted_it(
    browser: Browser, console: Console
) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("topics")
    page.get_by_label("Filter Topics").fill("payments")
    page.get_by_role("link", name="the history of payments").click()
    expect(page.locator("main h1")).to_have_text("History: payments")
    expect(page.get_by_role("region", name="States")).to_contain_text("DELETE_TOPIC_IN_NAMESRV 127.0.0.1")
    tab.close()

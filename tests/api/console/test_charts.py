# SPDX-License-Identifier: Apache-2.0
"""The dashboard's charts, over two hours in the life of 30 brokers: what they show, the same as tables, and where they lead."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from dev.support.browser import Watched
from dev.support.local import LocalGateway

pytestmark = pytest.mark.deep

SIZES = {"wide": (1280, 900), "small": (390, 800)}


@pytest.fixture
def tab(browser: Browser, lived: LocalGateway) -> Iterator[Watched]:
    found = Watched(browser, lived.http_url, viewport={"width": 1280, "height": 900})
    yield found
    found.close()


def chart(page: Page, title: str) -> Locator:
    return page.locator("figure.plot", has=page.locator("figcaption", has_text=re.compile(f"^{re.escape(title)}")))


def test_a_table_says_what_a_chart_shows_and_leads_to_the_changes_by_keyboard(
    tab: Watched, lived: LocalGateway
) -> None:
    page = tab.go("dashboard")
    expired = chart(page, "Brokers expired")
    expect(expired.locator("canvas")).to_be_visible()
    expired.locator("summary").focus()
    page.keyboard.press("Enter")
    rows = expired.locator(".numbers tbody tr")
    expect(rows.first).to_be_visible()
    counts = [int(text) for text in rows.locator("td").all_inner_texts()]
    found = httpx.get(
        f"{lived.http_url}/v1/changes?command=BROKER_EXPIRED&tableName=brokerLiveTable&limit=1000", timeout=60
    )
    assert sum(counts) == len(found.json()["changes"]) > 10
    for _ in range(2):  # over the table, which scrolls, to the first time
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Audit Log")
    assert "command=BROKER_EXPIRED" in page.url
    shown = page.locator("main tbody tr[data-key]")
    expect(shown.first).to_contain_text("BROKER_EXPIRED")
    assert shown.count() >= counts[0]


def test_a_click_leads_to_the_changes_of_a_point_and_a_drag_selects_a_window(tab: Watched) -> None:
    page = tab.go("dashboard")
    over = chart(page, "Changed rows per minute").locator(".u-over")
    expect(over).to_be_visible()
    over.click(position={"x": 5, "y": 30})
    expect(page.locator("main h1")).to_have_text("Audit Log")
    assert re.search(r"as_of=\d+", page.url)
    page = tab.go("dashboard")
    over = chart(page, "Topics").locator(".u-over")
    over.hover()
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 30, steps=4)
    page.mouse.up()
    expect(page.locator(".marked")).to_contain_text("changes")
    expect(page.locator("main h1")).to_have_text("Dashboard")
    expect(page.locator("#banner")).to_be_visible()


def test_totals_end_with_what_is_there_now(tab: Watched) -> None:
    page = tab.go("dashboard")
    for title, fact in (("Topics", "topics"), ("Live brokers", "live brokers")):
        shown = chart(page, title)
        expect(shown.locator("canvas")).to_be_visible()
        shown.locator("summary").click()
        now = page.locator(".facts div", has_text=re.compile(rf"^\s*{fact}")).locator("dd").first
        expect(shown.locator(".numbers tbody td").first).to_have_text(now.inner_text())


def test_a_window_in_which_nothing_happened_says_so(tab: Watched) -> None:
    page = tab.go("dashboard")
    expect(chart(page, "Refusals")).to_contain_text("No command or registration was refused")
    expect(chart(page, "Refusals").locator("canvas")).to_have_count(0)


def sound(browser: Browser, lived: LocalGateway, place: str, scheme: str, size: str) -> None:
    """Nothing is wider than the window, and axe finds nothing serious."""
    width, height = SIZES[size]
    tab = Watched(
        browser, lived.http_url, color_scheme=scheme, viewport={"width": width, "height": height}, bypass_csp=True
    )
    page = tab.go(place)
    if place == "dashboard":
        expect(page.locator("figure.plot canvas")).to_have_count(5)
    for summary in page.locator("summary:visible").all():
        summary.click()
    expect(page.locator(".density rect").first).to_be_attached()
    beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert beyond <= 0
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in serious]
    tab.close()


@pytest.mark.parametrize("place", ["dashboard", "lifelines"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_the_width(browser: Browser, lived: LocalGateway, place: str, scheme: str, size: str) -> None:
    sound(browser, lived, place, scheme, size)


def test_the_time_bar_shows_density_zooms_and_selects(tab: Watched) -> None:
    page = tab.go("dashboard")
    strip = page.locator(".density")
    expect(strip.locator("rect.expiry.mark").first).to_be_attached()
    expect(strip.locator("rect.admin.mark").first).to_be_attached()
    whole = page.locator("#epoch").get_attribute("max")
    strip.hover()
    page.mouse.wheel(0, -100)
    expect(page.get_by_role("button", name="Whole history")).to_be_visible()
    assert re.search(r"zoom=\d+-\d+", page.url)
    low, high = (int(page.locator("#epoch").get_attribute(name) or 0) for name in ("min", "max"))
    assert 1 < low < high < int(whole or 0)
    page.keyboard.press("0")
    expect(page.locator("#epoch")).to_have_attribute("min", "1")
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Whole history")).to_be_visible()
    page.get_by_role("button", name="Whole history").click()
    strip.hover()
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 10, steps=4)
    page.mouse.up()
    expect(page.locator(".marked")).to_contain_text("from epoch")
    expect(page.locator("#banner")).to_be_visible()
    expect(page.locator(".track > .band")).to_be_visible()


def test_each_broker_has_a_lane_that_leads_to_its_changes(tab: Watched, lived: LocalGateway) -> None:
    page = tab.go("lifelines")
    rows = page.locator("main tbody tr[data-key]")
    expect(page.locator(".count")).to_have_text("30")
    flapping = httpx.get(f"{lived.http_url}/v1/reports/flapping?times=0", timeout=60).json()["rows"]
    assert flapping
    page.get_by_label("Filter Lifelines").fill(flapping[0]["brokerName"])
    expect(rows).to_have_count(1)
    expect(rows.locator("td").nth(5)).to_have_text(str(flapping[0]["timesBack"]))
    assert rows.locator("svg.lane rect.expired").count() >= flapping[0]["expired"] > 0
    expect(rows.locator("svg.lane")).to_have_attribute("aria-label", re.compile("expired after"))
    rows.locator("svg.lane").click(position={"x": 2, "y": 12})
    expect(page.locator("main h1")).to_have_text("Audit Log")
    assert f"brokerName={flapping[0]['brokerName']}" in page.url
    expect(page.locator("main tbody tr[data-key]").first).to_be_visible()


def test_lanes_are_in_sight_in_a_narrow_window(browser: Browser, lived: LocalGateway) -> None:
    tab = Watched(browser, lived.http_url, viewport={"width": 390, "height": 800})
    page = tab.go("lifelines")
    box = page.locator("svg.lane").first.bounding_box()
    assert box is not None
    assert box["width"] > 60
    assert box["x"] + box["width"] <= 390
    tab.close()

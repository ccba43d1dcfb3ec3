# SPDX-License-Identifier: Apache-2.0
"""Reports in the console, over two hours in the life of 30 brokers: rows, charts, and the changes behind each row."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from dev.support.browser import Watched
from dev.support.local import LocalGateway
from lake.history.report_duckdb import rows_by_duckdb
from lake.history.reports import REPORTS, ReportSpec

pytestmark = pytest.mark.deep

WITHOUT_ROWS = ("refused",)
"""Nothing was refused in these two hours."""


@pytest.fixture
def tab(browser: Browser, lived: LocalGateway) -> Iterator[Watched]:
    found = Watched(browser, lived.http_url, viewport={"width": 1280, "height": 900})
    yield found
    found.close()


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_a_report_has_the_rows_of_the_gateway_and_a_chart(
    tab: Watched, lived: LocalGateway, report: ReportSpec
) -> None:
    name = report.name
    found = httpx.get(f"{lived.http_url}/v1/reports/{name}?limit=5000", timeout=60).json()
    page = tab.go(f"reports/{name}")
    expect(page.locator("main h2").first).to_have_text(report.title)
    if name in WITHOUT_ROWS:
        expect(page.locator(".empty:visible")).to_contain_text("Nothing to report in this window")
        return
    expect(page.locator(".count")).to_have_text(str(len(found["rows"])))
    expect(page.locator(".chart canvas, .chart .bars-by-label svg").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    head, *lines = Path(download.value.path()).read_text().splitlines()
    assert set(head.split(",")) == set(found["columns"])
    assert len(lines) == len(found["rows"])


def test_a_link_leads_to_the_changes_behind_a_row_by_keyboard(tab: Watched) -> None:
    page = tab.go("dashboard")
    page.keyboard.press("s")
    expect(page.locator("main h1")).to_have_text("Reports")
    page.get_by_role("link", name="Brokers that expired or lost their connection").focus()
    page.keyboard.press("Enter")
    row = page.locator("main tbody tr[data-key]").first
    broker = row.locator("td").nth(1).inner_text()
    row.get_by_role("link", name="epochs").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Audit Log")
    assert f"brokerName={broker}" in page.url
    for command in ("BROKER_EXPIRED", "REGISTER_BROKER"):
        expect(page.locator("main tbody tr[data-key]", has_text=command).first).to_be_visible()


def test_the_window_and_the_same_query_elsewhere(tab: Watched, lived: LocalGateway) -> None:
    page = tab.go("reports/flapping?from=40&as_of=100&times=0")
    rows = page.locator("main tbody tr[data-key]")
    expect(rows.first).to_be_visible()
    number = rows.count()
    asked = {"from": 40, "to": 100, "times": 0}
    assert number == len(httpx.get(f"{lived.http_url}/v1/reports/flapping", params=asked, timeout=60).json()["rows"])
    page.get_by_role("button", name="Copy as").click()
    words = shlex.split(page.get_by_label("CLI", exact=True).input_value())
    assert words[1:4] == ["history", "report", "flapping"]
    assert {"--from", "40", "--to", "100", "--times", "0"} <= set(words)
    query = page.get_by_label("SQL", exact=True).input_value()
    assert len(rows_by_duckdb(lived.lake_dir, query)[1]) == number
    page.get_by_role("button", name="Close").click()
    page.get_by_label("times").fill("100")
    page.get_by_label("times").press("Enter")
    expect(page.locator(".empty:visible")).to_contain_text("Nothing to report in this window")


def test_a_name_that_is_no_report(tab: Watched) -> None:
    page = tab.go("reports/never")
    expect(page.locator("main")).to_contain_text("There is no report never.")
    expect(page.locator("main dl.list")).to_contain_text("Who changed most")

# SPDX-License-Identifier: Apache-2.0
"""A topic as a picture: its brokers and queues, what is different from another time, and where a static topic's queues are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from dev.support.browser import Watched
from dev.support.http_api import broker
from tests.api.console.conftest import Console

pytestmark = pytest.mark.deep


def registration(host: int, queues: int, counter: int = 1) -> dict[str, Any]:
    """broker-HOST holds orders, and the logic queue HOST of it."""
    name = f"broker-{host}"
    body = broker(name, topics={"orders": queues, "other": 4}, host=host, counter=counter)
    mapping = {"topic": "orders", "scope": "__global__", "totalQueues": 8, "bname": name, "epoch": 3, "dirty": False}
    body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {
        "orders": {**mapping, "currIdMap": {str(host): 0}}
    }
    return body


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """orders: broker-1 stays, broker-2 gets more queues, broker-3 goes, broker-4 comes."""
    found = Console(tmp_path_factory.mktemp("topic"))
    for host in (1, 2, 3):
        found.send("POST", "/v1/brokers/register", registration(host, 4))
    found.send("POST", "/v1/brokers/register", registration(2, 6, 2))
    found.send("POST", "/v1/brokers/register", registration(4, 4))
    gone = {"clusterName": "c1", "brokerName": "broker-3", "brokerAddr": "10.0.0.3:10911", "brokerId": 0}
    found.send("POST", "/v1/brokers/unregister", gone)
    yield found
    found.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_difference_from_another_time_is_on_the_cards(
    browser: Browser, console: Console, scheme: str, width: int
) -> None:
    asked = {"topic": "orders", "brokerName": "broker-3", "tableName": "topicQueueTable"}
    first = console.client.get("/v1/changes", params=asked).json()["changes"][-1]["epoch"]
    tab = Watched(browser, console.url, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page = tab.go("topic/orders")
    cards = page.locator(".card")
    expect(cards).to_have_count(3)
    expect(page.locator(".sign")).to_have_count(0)
    box = page.get_by_label("Compare with: epoch, time, -2h")
    box.focus()
    page.keyboard.type(str(first))
    page.keyboard.press("Enter")
    expect(cards).to_have_count(4)
    for name, kind in {"broker-1": "same", "broker-2": "changed", "broker-3": "removed", "broker-4": "added"}.items():
        expect(page.locator(f".card.{kind}")).to_contain_text(name)
    expect(page.locator(".card.changed")).to_contain_text("readQueueNums 4 → 6")
    expect(page.locator(".card.changed i.queue.new")).to_have_count(2)
    expect(page.locator(".card.removed i.queue.gone")).to_have_count(4)
    expect(page.get_by_role("status").filter(has_text="Difference from")).to_contain_text(
        "added: broker-4; removed: broker-3; changed: broker-2"
    )
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    found = Axe().run(page).response["violations"]
    assert not [(each["id"], each["nodes"][:2]) for each in found if each["impact"] in ("serious", "critical")]
    page.get_by_role("button", name="Do not compare").click()
    expect(cards).to_have_count(3)
    tab.close()


def test_a_static_topic_says_where_each_logic_queue_is(browser: Browser, console: Console) -> None:
    tab = Watched(browser, console.url)
    page = tab.go("topic/orders")
    rows = page.get_by_role("region", name="Static topic", exact=True).first.locator("tr[data-key]")
    expect(rows.first).to_be_visible()
    assert rows.count() == 8
    expect(rows.nth(1)).to_contain_text("broker-1")
    expect(rows.nth(7)).to_contain_text("not mapped")
    tab.close()

# SPDX-License-Identifier: Apache-2.0
"""Answers that cost the gateway much, while epochs come fast: one request at a time, the newest question, then a rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from dev.support.browser import Watched
from dev.support.http_api import broker
from tests.api.console.conftest import Console

pytestmark = pytest.mark.deep

REST_MS = 5_000
"""The shortest pause of `throttled_query.js`."""
RESTS = 20
"""`PAUSE` of `throttled_query.js`: on a busy machine the answer takes long, and the rest so many times as long."""
PATIENCE_MS = 30_000
TOOK_MS = "performance.getEntriesByType('resource').findLast((each) => each.name.includes('/v1/lifelines')).duration"
SETTLED_MS = 1_000
"""Time in which a page asks what it is going to ask."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("console"))
    found.send("POST", "/v1/brokers/register", broker("broker-a", topics=("orders", "payments")))
    epochs(found, 20)
    yield found
    found.close()


def epochs(console: Console, number: int) -> None:
    """One after the other."""
    for count in range(number):
        console.send("PUT", "/v1/kv/N/k", {"value": f"{number}-{count}"})


class Held:
    """Requests of one kind, which are answered when the test says."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.routes: list[Any] = []
        self.ended: list[Any] = []
        page.route(re.compile(pattern), lambda route: self.routes.append(route))
        page.on("requestfailed", self._ended)

    def _ended(self, request: Any) -> None:
        if any(route.request == request for route in self.routes):
            self.ended.append(request)

    @property
    def under_way(self) -> list[Any]:
        return [route for route in self.routes if route.request not in self.ended]


def newest(console: Console) -> int:
    found: int = console.client.get("/v1/epochs", params={"limit": 1}).json()["epochs"][0]["epoch"]
    return found


def test_one_density_is_under_way_and_the_newest_range_wins(tab: Watched, console: Console) -> None:
    held = Held(tab.page, r"/v1/activity\?.*by=epoch")
    page = tab.go("ops")
    page.wait_for_timeout(SETTLED_MS)
    assert len(held.routes) == 1
    for _ in range(3):
        epochs(console, 2)
        page.wait_for_timeout(SETTLED_MS)
    expect(page.locator(".when")).to_contain_text(f"epoch {newest(console)}")
    assert len(held.routes) == 1
    for _ in range(2):
        page.keyboard.press("+")
        page.wait_for_timeout(SETTLED_MS)
        assert len(held.under_way) == 1
    low, high = (page.locator("#epoch").get_attribute(name) for name in ("min", "max"))
    [last] = held.under_way
    assert f"from={int(low or 0) - 1}" in last.request.url
    assert f"to={high}" in last.request.url or int(high or 0) == newest(console)
    assert len(held.routes) == 3
    last.continue_()
    expect(page.locator(".density rect").first).to_be_attached()
    epochs(console, 2)
    page.wait_for_timeout(SETTLED_MS)
    assert len(held.routes) == 3  # the gateway rests


def test_one_question_for_lifelines_is_under_way(tab: Watched, console: Console) -> None:
    held = Held(tab.page, r"/v1/lifelines")
    page = tab.page
    page.goto(f"{console.url}/console/#/lifelines")
    page.wait_for_timeout(SETTLED_MS)
    for _ in range(2):
        epochs(console, 2)
        page.wait_for_timeout(SETTLED_MS)
    assert len(held.under_way) == len(held.routes) == 1
    held.routes[0].continue_()
    expect(page.locator(".count")).to_have_text("1")
    epochs(console, 2)
    page.wait_for_timeout(SETTLED_MS)
    assert len(held.routes) == 1  # the gateway rests


def test_lifelines_are_asked_for_once_for_each_epoch_and_after_a_rest(tab: Watched, console: Console) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url) if "/v1/lifelines" in request.url else None)
    page = tab.go("lifelines")
    expect(page.locator(".count")).to_have_text("1")
    expect(page.locator(".live")).to_have_text("live")
    assert len(asked) == 1
    console.send("POST", "/v1/brokers/register", broker("broker-b", topics=("orders", "payments"), host=2))
    page.wait_for_timeout(SETTLED_MS)
    assert len(asked) == 1
    took_ms = page.evaluate(TOOK_MS)
    rest = {"timeout": PATIENCE_MS + RESTS * took_ms}
    expect(page.locator(".count")).to_have_text("2", **rest)  # after the rest, without a further epoch
    number = len(asked)
    page.wait_for_timeout(REST_MS)
    page.keyboard.press("r")
    page.wait_for_timeout(REST_MS + SETTLED_MS)
    assert len(asked) == number

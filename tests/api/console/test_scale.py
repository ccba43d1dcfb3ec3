# SPDX-License-Identifier: Apache-2.0
"""A console of many topics and brokers in a real Chromium: when the first rows are painted, and that the page goes on.

``ROUTELAKE_TEST_FIGURES=yes ./routelake test --deep -n0 -s tests/api/console/test_scale.py`` prints the figures.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from dev.benchmarks.harness.console import registrations
from dev.benchmarks.harness.lake import LakeMaker
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.browser import Watched
from dev.support.local import LocalGateway, LocalLake
from schemas.events import encode, routing_key

pytestmark = pytest.mark.deep

WATCH: Final = """
(() => {
  const found = window.measured = {painted_ms: null, longest_ms: 0};
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) found.longest_ms = Math.max(found.longest_ms, task.duration);
  }).observe({entryTypes: ["longtask"]});
  new MutationObserver((_, observer) => {
    if (!document.querySelector("main tbody tr[data-key]")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { found.painted_ms = performance.now(); }));
  }).observe(document, {childList: true, subtree: true});
})();
"""
"""From the beginning of the navigation until the frame with the first rows; and the longest task of the page since then."""
AT_MOST_MS: Final = 1_000
WITHIN_A_SECOND: Final = ("page", "filter", "diff of 100,000 rows", "page of then")
TRIES: Final = 8
"""The quickest of so many counts: what else this machine does makes no page quicker."""
QUIET_WITHIN_S: Final = 900
"""Time for repeated measurements of the first rows. Tests of other workers slow down the browser. They end in this time."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """1,000 brokers, each with ten topics of its own."""
    with LocalLake(tmp_path_factory.mktemp("many")) as lake:
        events = registrations(brokers=1_000, topics=10_000)
        appended = lake.log.append([(routing_key(event), encode(event)) for event in events])
        lake.fold.wait_for(appended[-1].offset, 120)
        with lake.gateway(remoting_port=None, http_port=0) as gateway:
            yield gateway


def measured(page: Page) -> dict[str, float]:
    page.wait_for_function("window.measured.painted_ms !== null")
    found: dict[str, float] = page.evaluate("window.measured")
    return found


def told(what: str) -> None:
    if os.environ.get("ROUTELAKE_TEST_FIGURES"):
        print(f"\n{what}")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("place", "rows", "last"), [("topics", 10_000, "topic-0009999"), ("cluster", 1_000, ""), ("lifelines", 1_000, "")]
)
def test_first_rows_within_a_second_of_the_navigation(
    browser: Browser, many: LocalGateway, place: str, rows: int, last: str
) -> None:
    found: list[float] = []
    until = time.monotonic() + QUIET_WITHIN_S
    while min(found, default=AT_MOST_MS) >= AT_MOST_MS and time.monotonic() < until:
        tab = Watched(browser, many.http_url, bypass_csp=True)  # each has a cache of its own
        tab.page.add_init_script(WATCH)
        page = tab.go(place)
        found.append(measured(page)["painted_ms"])
        expect(page.locator(".count")).to_have_text(str(rows))
        assert page.locator("main tbody tr").count() < 100
        page.locator(".scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
        expect(page.locator("main tbody tr[data-key]").last).to_have_attribute("aria-rowindex", str(rows + 1))
        if last:
            page.get_by_label("Filter Topics").fill(last)
            expect(page.locator(".count")).to_have_text(f"1 of {rows}")
        tab.close()
    told(f"{rows:,} rows of {place}: painted {found[-1]:.0f} ms after the navigation began")
    quickest = f"the quickest of {len(found)} loads in {QUIET_WITHIN_S} s took {min(found):.0f} ms"
    assert found[-1] < AT_MOST_MS, f"first rows of {place}: {quickest}"


@pytest.fixture(scope="module")
def millions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routelake]:
    """A gateway process over 3,000,000 topics of 30 brokers."""
    data = tmp_path_factory.mktemp("millions") / "data"
    with LakeMaker(data) as maker:
        for event in registrations(brokers=30, topics=3_000_000):
            maker.batch([event])
    gateway = Routelake(data, "gateway")
    try:
        gateway.start(wait_ready_s=None)
        wait_until(lambda: _is_ready(gateway), 600, "the gateway's view", 0.5)
        yield gateway
    finally:
        gateway.kill()


def _is_ready(gateway: Routelake) -> bool:
    try:
        gateway.get("/readyz")
    except OSError:
        return False
    return True


@pytest.mark.timeout(1_800)
def test_answers_about_three_million_topics(millions: Routelake) -> None:
    """What the console asks, and how long a read of a route takes that is asked meanwhile."""
    first = "/v1/topics?details=true&limit=10000"
    best: dict[str, float] = {}
    for number in range(TRIES):
        topic = f"topic-{number * 300_007:07}"
        request = urllib.request.Request(f"http://127.0.0.1:{millions.http_port}/v1/topics/{topic}", method="DELETE")
        urllib.request.urlopen(request, timeout=120).close()
        with beside(millions) as slowest_s:
            figures = {"list after a change": timed(millions, first)}
            cursor = millions.get(f"{first}&prefix=topic-1")["nextCursor"]
            figures |= {
                "page": timed(millions, f"{first}&cursor={cursor}"),
                "filter": timed(millions, f"{first}&prefix=topic-29999"),
                "diff of 100,000 rows": timed(millions, f"/v1/diff?from=29&to=30&limit=1000&brokerName=broker-{29:04}"),
                "list of then": timed(millions, f"{first}&as_of={number + 20}"),
                "page of then": timed(millions, f"{first}&as_of={number + 20}&cursor={cursor}"),
            }
        figures["a read of a route meanwhile, at most"] = slowest_s[0]
        best = {name: min(value, best.get(name, value)) for name, value in figures.items()}
        if max(best[name] for name in WITHIN_A_SECOND) < AT_MOST_MS / 1000:
            break
    told(f"3,000,000 topics, s: {', '.join(f'{name} {value:.2f}' for name, value in best.items())}")
    assert max(best[name] for name in WITHIN_A_SECOND) < AT_MOST_MS / 1000, best


def timed(gateway: Routelake, path: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}{path}", timeout=120) as answer:
        answer.read()
    return time.monotonic() - began


@contextmanager
def beside(gateway: Routelake) -> Iterator[list[float]]:
    """Reads of a route all the while; the slowest, in seconds."""
    slowest_s, over = [0.0], threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            slowest_s[0] = max(slowest_s[0], timed(gateway, "/v1/topics/topic-0000007/route"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield slowest_s
    finally:
        over.set()
        reader.join()


@pytest.mark.timeout(1_800)
def test_three_million_topics_are_a_list_with_an_end_and_no_pause(browser: Browser, millions: Routelake) -> None:
    url = f"http://127.0.0.1:{millions.http_port}"
    best: dict[str, float] = {}
    for _ in range(TRIES):
        tab = Watched(browser, url, bypass_csp=True)
        tab.page.add_init_script(WATCH)
        page = tab.go("topics")
        expect(page.locator("main")).to_contain_text("The first 30000 of ")
        figures = measured(page)
        page.get_by_label("Filter Topics").fill("topic-29999")
        expect(page.locator("main")).to_contain_text("100 topics that begin with topic-29999")
        figures["filtered_longest_ms"] = measured(page)["longest_ms"]
        answers = page.evaluate(
            "performance.getEntriesByType('resource').filter(each => each.name.includes('/v1/topics')).map(each => each.duration)"
        )
        figures["answer_ms"] = max(answers)
        best = {name: min(value, best.get(name, value)) for name, value in figures.items()}
        tab.close()
        if max(best.values()) < AT_MOST_MS:
            break
    told(f"3,000,000 topics: {', '.join(f'{name} {value:.0f}' for name, value in best.items())}")
    assert best["answer_ms"] < AT_MOST_MS, best
    assert best["filtered_longest_ms"] < AT_MOST_MS, best

# SPDX-License-Identifier: Apache-2.0
"""The console in a real Chromium: every page, the past by keyboard, live, an action with its receipt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from api.http.settings import HttpSettings, Site
from dev.support import events as make
from dev.support.browser import Watched
from dev.support.http_api import broker
from lake.history.report_duckdb import DuckLake
from schemas.broker import QueueRow
from schemas.events import AnyEvent, encode, routing_key
from tests.api.console.conftest import Console

PAST = "2"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("console"))
    found.send("POST", "/v1/brokers/register", broker("broker-a", topics=("orders", "payments", "%RETRY%g")))
    found.send("POST", "/v1/brokers/register", broker("broker-b", topics=("orders", "refunds"), host=2))
    found.send("POST", "/v1/brokers/broker-b/wipe-write-perm")
    found.send("PUT", "/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"})
    found.send("DELETE", "/v1/topics/payments")
    yield found
    found.close()


def ready(page: Page) -> None:
    """The bar knows the epochs."""
    expect(page.locator(".when b")).to_have_text("now")
    expect(page.locator(".when")).to_contain_text("UTC")


def test_the_past_by_keyboard(tab: Watched, console: Console) -> None:
    page = tab.go("topics")
    ready(page)
    expect(page.locator("tr[data-key=orders]")).to_be_visible()
    expect(page.locator("tr[data-key=payments]")).to_have_count(0)
    deleted = console.client.get("/v1/changes", params={"topic": "payments", "limit": 1}).json()["changes"][0]["epoch"]
    newest = console.client.get("/v1/epochs", params={"limit": 1}).json()["epochs"][0]["epoch"]
    for _ in range(newest - deleted + 1):  # back to the epoch before that
        page.keyboard.press(",")
    expect(page.locator("tr[data-key=payments]")).to_be_visible()
    assert "as_of=" in page.url
    expect(page.locator("#banner")).to_contain_text("You can change things only at")
    slider = page.locator("#epoch")
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    expect(slider).to_have_value("1")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("epoch 1")
    page.keyboard.press("Shift+ArrowRight")
    assert "from=1" in page.url
    expect(page.locator(".track > .band")).to_be_visible()
    shared = page.url
    page.keyboard.press("n")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("tr[data-key=refunds]")).to_be_visible()
    page.goto("about:blank")
    page.goto(shared)  # as a colleague would
    expect(page.locator("#banner")).to_contain_text("epoch 2")


@pytest.mark.deep
def test_a_moment_that_is_typed_and_one_that_is_not_there(tab: Watched) -> None:
    page = tab.go("topics")
    page.keyboard.press("g")
    page.keyboard.type("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator(".under .bad")).to_contain_text("Enter an epoch")
    page.locator("#goto").fill("2")
    page.keyboard.press("Enter")
    expect(page.locator("#banner")).to_contain_text("epoch 2")
    tab.refusals.add(404)
    page = tab.go("topics?as_of=999999")
    expect(page.locator("#notice")).to_contain_text("999999")


def test_large_numbers_keep_their_digits(tab: Watched) -> None:
    page = tab.go("topics")
    texts = ('{"epoch":9007199254740993,"at":[-9223372036854775808,1]}', '{"epoch":9007199254740991,"share":0.5}')
    found = page.evaluate(
        "async texts => { const {parse} = await import(new URL('api.js', document.querySelector('script').src).href); return texts.map(parse); }",
        list(texts),
    )
    assert found == [
        {"epoch": "9007199254740993", "at": ["-9223372036854775808", 1]},
        {"epoch": 2**53 - 1, "share": 0.5},
    ]


def test_it_shows_what_changes_as_it_changes(tab: Watched, console: Console) -> None:
    page = tab.go("topics")
    expect(page.locator(".live")).to_have_text("live")
    console.send("POST", "/v1/brokers/register", broker("broker-l", topics=("live-1", "live-2"), host=3))
    expect(page.locator("tr[data-key=live-1]")).to_be_visible()


@pytest.mark.deep
def test_the_differences_of_two_moments(tab: Watched) -> None:
    page = tab.go("compare?from=1&as_of=2")
    expect(page.locator("main")).to_contain_text("Before is epoch 1")
    expect(page.locator("main table")).to_contain_text("only later")


def test_an_action_shows_the_difference_before_and_the_receipt_after(tab: Watched, console: Console) -> None:
    console.send("POST", "/v1/brokers/register", broker("broker-d", topics=("doomed", "other"), host=4))
    page = tab.go("topic/doomed")
    page.get_by_role("button", name="Delete topic…").click()
    box = page.get_by_role("dialog", name="Delete topic doomed")
    expect(box).to_contain_text("readQueueNums=8")
    box.get_by_role("button", name="Delete", exact=True).click()
    expect(box.locator(".receipt")).to_contain_text("applied at")
    expect(box).to_contain_text("log offset")
    expect(box.locator("table")).to_have_count(2)  # what was to be different, and what is
    box.get_by_role("button", name="Close").click()
    expect(page.locator("main")).to_contain_text("No topic route info for doomed")
    page = tab.go("topic/doomed?as_of=2")
    expect(page.get_by_role("button", name="Delete topic…")).to_be_hidden()


@pytest.mark.deep
def test_kv_values_are_hidden_until_somebody_asks(tab: Watched) -> None:
    page = tab.go("ops")
    row = page.locator("tr[data-key=orders]").first
    expect(row).not_to_contain_text("broker-a:8")
    row.get_by_role("button", name="Show the value of orders").click()
    expect(row).to_contain_text("broker-a:8")


@pytest.mark.deep
def test_the_configuration_is_there_now(tab: Watched) -> None:
    config = tab.go("ops").get_by_role("region", name="NameServer config")
    expect(config.locator("tr[data-key=orderMessageEnable]")).to_contain_text("false")
    expect(tab.go(f"ops?as_of={PAST}").get_by_role("region", name="NameServer config")).to_be_hidden()


@pytest.mark.deep
def test_the_question_elsewhere_and_csv(tab: Watched) -> None:
    page = tab.go("topics?as_of=2")
    page.get_by_role("button", name="Copy as").click()
    assert "as_of=2" in page.get_by_label("curl").input_value()
    query = page.get_by_label("SQL", exact=True).input_value()
    assert "rows_at('topicQueueTable', '2')" in query
    assert shlex.split(page.get_by_label("CLI", exact=True).input_value()) == ["./routelake", "sql", query]
    page.get_by_role("button", name="Close").click()
    page.get_by_label("Filter Topics").fill("order")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["topicName", "orders"]


@pytest.mark.deep
def test_copies_ask_for_the_rows_of_their_table(tab: Watched, console: Console) -> None:
    """The filters, too. What has no words for them is not there."""

    def copied(place: str, number: int = 0) -> dict[str, str]:
        page = tab.go(place)
        page.get_by_role("button", name="Copy as").nth(number).click()
        areas = page.get_by_role("dialog", name="Copy as").locator("textarea").all()
        return {area.get_attribute("aria-label") or "": area.input_value() for area in areas}

    for filters in ("topic=payments", "command=WIPE_WRITE_PERM_OF_BROKER&outcome=applied", "brokerName=broker-a"):
        rows = console.client.get(f"/v1/changes?{filters}&limit=1000&from=1&to=5").json()["changes"]
        query = copied(f"audit?{filters}&from=1&as_of=5")["SQL"]
        differences = console.client.get(f"/v1/diff?{filters}&limit=1000&from=1&to=5").json()["differences"]
        found = copied(f"compare?{filters}&from=1&as_of=5")
        with DuckLake(console.lake.lake_dir) as lake:
            assert len(lake.connection.execute(query).fetchall()) == len(rows) > 0
            if "SQL" in found:
                assert len(lake.connection.execute(found["SQL"]).fetchall()) == len(differences)
    assert set(copied("compare?command=REGISTER_BROKER&from=1")) == {"curl", "CLI"}
    assert set(copied("audit?cluster=c1")) == {"curl", "CLI"}
    assert set(copied("ops", 2)) == {"SQL", "CLI"}  # quarantineTable is not in the HTTP API


@pytest.mark.deep
def test_a_history_of_then_knows_nothing_of_later(tab: Watched, console: Console) -> None:
    """Nor does the same question elsewhere: its SQL finds those states."""
    page = tab.go(f"history/payments?as_of={PAST}")
    states = page.get_by_role("region", name="States").locator("tr[data-key]")
    expect(states).to_have_count(1)
    expect(states).to_contain_text("still")
    page.get_by_role("button", name="Copy as").first.click()
    assert "to=2" in page.get_by_label("curl", exact=True).input_value()
    assert "--to 2" in page.get_by_label("CLI", exact=True).input_value()
    query = page.get_by_label("SQL", exact=True).input_value()
    page.get_by_role("button", name="Close").click()
    with DuckLake(console.lake.lake_dir) as lake:
        assert len(lake.connection.execute(query).fetchall()) == 1
    page = tab.go(f"ops?as_of={console.client.get('/v1/epochs').json()['epochs'][-2]['eventTime']}")
    expect(page.get_by_role("region", name="Epochs").locator("tr[data-key]")).to_have_count(2)


@pytest.mark.deep
def test_another_routelake_at_the_same_page_and_time(browser: Browser, console: Console, tmp_path: Path) -> None:
    sites = HttpSettings(console_sites=(Site("other", console.url),))
    one = Console(tmp_path, http=sites)
    try:
        one.send("POST", "/v1/brokers/register", broker(topics=("orders", "here")))
        one.send("DELETE", "/v1/topics/here")
        then = one.client.get("/v1/epochs", params={"limit": 1}).json()["epochs"][0]
        tab = Watched(browser, one.url)
        page = tab.go(f"topic/orders?as_of={then['epoch']}")
        expect(page.locator(".when")).to_contain_text("UTC")
        page.get_by_label("Other routelakes").select_option("other")
        page.wait_for_url(f"{console.url}/**")
        assert "#/topic/orders?" in page.url
        assert quote(then["eventTime"]) in page.url, "an epoch is of one lake alone; its time is everybody's"
        expect(page.locator("main h1")).to_have_text("Router: orders")
        assert all(each.startswith(f"asked {console.url}/") for each in tab.wrong), tab.wrong
        tab.wrong.clear()
        tab.close()
    finally:
        one.close()


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "a" * 255,
    "'\"><script>alert(1)</script>",
    "%2e%2e/?#&=",
    "__proto__",
)


@pytest.mark.deep
def test_hostile_names_are_text(tab: Watched, console: Console) -> None:
    rows = {name: QueueRow(4, 4, 6, 0) for name in HOSTILE}
    hostile = make.register("10.9.9.9:1", name=HOSTILE[0], cluster=HOSTILE[1], table=rows)
    events: list[AnyEvent] = [hostile, *(make.put("ORDER_TOPIC_CONFIG", name, name) for name in HOSTILE)]
    appended = console.lake.log.append([(routing_key(event), encode(event)) for event in events])
    console.lake.fold.wait_for(appended[-1].offset)
    page = tab.go("topics")
    expect(page.get_by_role("link", name=HOSTILE[0], exact=True)).to_be_visible()
    for name in HOSTILE:
        page = tab.go(f"topics?q={quote(name)}")
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("main h1")).to_have_text(f"Router: {name}")  # the API itself refuses most of them
        page.get_by_role("link", name="History of this topic").click()
        expect(page.locator("main h1")).to_have_text(f"History: {name}")
        expect(page.locator("main tbody tr[data-key]").first).to_be_visible()
        expect(page.locator("#notice")).to_be_empty()
    for place in ("cluster", "audit", "compare?from=1", "ops"):
        page = tab.go(place)
        expect(page.locator("main tbody tr[data-key]").first).to_be_visible()
    expect(page.get_by_role("button", name=f"Show the value of {HOSTILE[0]}")).to_be_visible()
    assert page.locator("main img, main script").count() == 0

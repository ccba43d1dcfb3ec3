# SPDX-License-Identifier: Apache-2.0
"""Time until the console shows something, and time of typical interactions, in Chromium.

``python -m dev.benchmarks.harness.console make DATA_DIR`` makes a lake of 10,000 topics on 1,000 brokers. Start a
gateway on it. ``python -m dev.benchmarks.harness.console measure NEW=http://127.0.0.1:8080 OLD=http://127.0.0.1:8081``
opens each page of each gateway in turns, and prints the medians. Two names compare two versions, each with a gateway on
a lake of its own.

The times are of the page's own clock: playwright and its protocol are not in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, CDPSession, Page

from dev.benchmarks.harness.lake import LakeMaker
from dev.support import events as make
from dev.support.browser import chromium
from schemas.broker import QueueRow
from schemas.events import AnyEvent

KEEP_ALIVE_MS: Final = 30 * 24 * 3_600_000
IN_AN_EPOCH: Final = 50
PAGES: Final = {
    "dashboard": "dashboard",
    "topics": "topics",
    "topic": "topic/topic-0000007",
    "brokers": "cluster",
    "history": "history/topic-0000007",
    "audit log": "audit",
}
PAINTED: Final = """() => new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (!paint || !document.querySelector("main tbody tr[data-key]")) return requestAnimationFrame(look);
    const rows_ms = performance.now();
    setTimeout(() => done([paint.startTime, rows_ms]));
  };
  look();
})"""
"""First contentful paint, and the frame with the first rows, in milliseconds since the navigation began."""
TAKES: Final = """([act, isDone]) => new Promise((done) => {
  const began_ms = performance.now();
  const look = () => {
    if (!eval(isDone)) return requestAnimationFrame(look);
    setTimeout(() => done(performance.now() - began_ms));
  };
  eval(act);
  look();
})"""
"""Time from an action to the frame that shows its effect."""
_TYPE: Final = """(() => { const field = document.querySelector("main input[type=search]");
  field.value = "0000001"; field.dispatchEvent(new Event("input", {bubbles: true})); })()"""
_DRAG: Final = """(() => { const bar = document.getElementById("epoch");
  bar.value = Number(bar.max) - 3; bar.dispatchEvent(new Event("input", {bubbles: true})); })()"""
_IN_PAST: Final = "!document.getElementById('banner').hidden && !document.querySelector('main[aria-busy]')"
INTERACTIONS: Final = {
    "filter topics": ("topics", _TYPE, "/^1 of /.test(document.querySelector('.count').textContent)"),
    "drag the bar: topics": ("topics", _DRAG, _IN_PAST),
    "drag the bar: dashboard": ("dashboard", _DRAG, _IN_PAST),
    "drag the bar: brokers": ("cluster", _DRAG, _IN_PAST),
    "open a change": (
        "audit",
        "document.querySelector('main tr[data-key] button.open').click()",
        "document.querySelector('.panel h2')?.textContent",
    ),
}


def registrations(brokers: int, topics: int) -> Iterator[AnyEvent]:
    """Registrations of brokers, each with an equal part of the topics."""
    own = topics // brokers
    for number in range(brokers):
        names = (f"topic-{number * own + at:07}" for at in range(own))
        yield make.register(
            f"10.0.{number // 200}.{number % 200 + 1}:10911",
            name=f"broker-{number:04}",
            table=dict.fromkeys(names, QueueRow(8, 8, 6, 0)),
            heartbeat_timeout_millis=KEEP_ALIVE_MS,
        )


def make_lake(data_dir: Path, brokers: int, topics: int) -> None:
    """Write the registrations, in several epochs."""
    events = list(registrations(brokers, topics))
    step = max(1, min(IN_AN_EPOCH, brokers // 20))
    with LakeMaker(data_dir) as maker:
        for at in range(0, len(events), step):
            maker.batch(events[at : at + step])


def opened(browser: Browser, url: str, place: str) -> tuple[Page, CDPSession]:
    """A page with an empty cache that is being loaded, and the counters of its processor time."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    counters = context.new_cdp_session(page)
    counters.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"{url}/console/#/{place}")
    return page, counters


def busy_ms(counters: CDPSession) -> float:
    """Processor time of the page's tasks so far. Other programs on the machine disturb it less."""
    found = {each["name"]: each["value"] for each in counters.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(found["TaskDuration"])


def measure(gateways: dict[str, str], rounds: int, pages: list[str], deadline_s: float) -> dict[str, list[float]]:
    """Milliseconds by figure and gateway. The gateways take turns, and begin a round in turns."""
    found: dict[str, list[float]] = {}
    began_s = time.monotonic()

    def keep(what: str, name: str, figure: float) -> None:
        found.setdefault(f"{what}\t{name}", []).append(figure)

    with chromium() as browser:
        for number in range(-1, rounds):  # the first one is thrown away
            order = list(gateways.items())[:: 1 if number % 2 else -1]
            for what in pages:
                for name, url in order:
                    if time.monotonic() - began_s > deadline_s:
                        return found
                    place, *action = INTERACTIONS.get(what, (PAGES.get(what, what),))
                    page, counters = opened(browser, url, place)
                    paint_ms, rows_ms = page.evaluate(PAINTED)
                    if action:
                        page.wait_for_function("/epoch [1-9]/.test(document.querySelector('.when').textContent)")
                        if not what.startswith("open") or page.locator("main button.open").count():
                            figure = page.evaluate(TAKES, action)
                            if number >= 0:
                                keep(what, name, figure)
                    elif number >= 0:
                        keep(f"{what}: processor time of the page", name, busy_ms(counters))
                        keep(f"{what}: first contentful paint", name, paint_ms)
                        keep(f"{what}: first rows", name, rows_ms)
                    page.context.close()
    return found


def main() -> None:
    """Make a lake, or measure consoles."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    maker = commands.add_parser("make")
    maker.add_argument("data_dir", type=Path)
    maker.add_argument("--brokers", type=int, default=1_000)
    maker.add_argument("--topics", type=int, default=10_000)
    meter = commands.add_parser("measure")
    meter.add_argument("gateways", nargs="+", metavar="NAME=URL")
    meter.add_argument("--rounds", type=int, default=5)
    meter.add_argument("--only", default=",".join([*PAGES, *INTERACTIONS]))
    meter.add_argument("--most-s", type=float, default=3_600.0, help="Stop after so many seconds.")
    meter.add_argument("--json", type=Path, help="Add the figures to this file.")
    options = parser.parse_args()
    if options.command == "make":
        make_lake(options.data_dir, options.brokers, options.topics)
        return
    gateways = dict(each.split("=", 1) for each in options.gateways)
    wanted = options.only.split(",")
    pages = [each for each in [*PAGES, *INTERACTIONS] if each in wanted]
    found = measure(gateways, options.rounds, pages, options.most_s)
    if options.json:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        found = {name: before.get(name, []) + found.get(name, []) for name in {**before, **found}}
        options.json.write_text(json.dumps(found))
    for name, figures in found.items():
        print(f"{name}\t{statistics.median(figures):.0f} ms\tof {len(figures)}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""A gateway that answers from the head of the log: what was acknowledged is seen at once, with the fold or without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.gateway.gateway import Gateway
from api.http.app import close_app
from api.live_view.replica import LiveReplica
from api.settings.gateway import GatewaySettings
from api.wiring import GatewayParts
from dev.peers.java import wait_until
from dev.support import events as make
from dev.support.fold import FoldThread
from dev.support.local import assert_no_difference
from dev.support.log_client import LocalLogClient
from dev.support.view_tables import as_tables
from eventlog.base import DEFAULT_READ_BYTES, DEFAULT_READ_RECORDS, Appended, EventLog, LogRecord
from eventlog.open import open_log, open_reader
from nameserver.view.snapshot import RouteView
from schemas.errors import UnavailableError
from schemas.events import AnyEvent, encode, routing_key

WAIT_S = 30.0


@asynccontextmanager
async def gateway(folder: Path, log: EventLog, name: str = "g", **settings: Any) -> AsyncIterator[GatewayParts]:
    chosen = GatewaySettings(gateway_id=name, lake_dir=folder / "lake", gap_s=3600.0, **settings)
    url = f"sqlite://{folder / 'events.db'}"
    parts = GatewayParts(chosen, LocalLogClient(log, chosen), lambda: open_reader(url))
    await parts.gateway.start()
    try:
        yield parts
    finally:
        await parts.gateway.stop()
        assert_no_difference(parts.gateway)


def _append(log: EventLog, event: AnyEvent) -> Appended:
    """As another gateway would."""
    (appended,) = log.append([(routing_key(event), encode(event))])
    return appended


def test_without_a_fold(tmp_path: Path) -> None:
    log = open_log(f"sqlite://{tmp_path / 'events.db'}")

    async def main() -> None:
        async with gateway(tmp_path, log) as one, gateway(tmp_path, log, "h") as other:
            took = []
            for number in range(50):
                began = time.perf_counter()
                event = make.register("b:1", table=make.topics(*[f"t{n}" for n in range(number + 2)]))
                receipt = await one.gateway.propose(event, None)
                took.append(time.perf_counter() - began)
                assert receipt.visible
                assert f"t{number}" in one.gateway.view.topics
            assert await other.gateway.live_view.wait_for(receipt.offset, WAIT_S)
            assert as_tables(other.gateway.view) == as_tables(one.gateway.view)
            print(f"visible after {sorted(took)[25] * 1000:.1f} ms, at most {max(took) * 1000:.1f} ms")
            receipt = await one.gateway.propose(make.put("n", "k", "v"), None)
            assert receipt.verdict == "applied"
            assert one.gateway.view.kv_get("n", "k") == "v"

    asyncio.run(main())
    log.close()


def test_with_a_fold_that_comes_and_goes(tmp_path: Path) -> None:
    log = open_log(f"sqlite://{tmp_path / 'events.db'}")

    async def main() -> None:
        async with gateway(tmp_path, log) as one:
            for round_ in range(4):
                with FoldThread(log, tmp_path / "lake", liveness_interval_s=0.0) as fold:
                    for number in range(10):
                        event = make.register(f"b{number}:1", name=f"b{number}", table=make.topics(f"t{round_}", "u"))
                        receipt = await one.gateway.propose(event, None)
                        assert receipt.visible
                    await asyncio.to_thread(fold.wait_for, receipt.offset)
                async with gateway(tmp_path, log, f"late-{round_}") as late:
                    assert await one.gateway.live_view.wait_for(log.end().next_offset - 1, WAIT_S)
                    assert await late.gateway.live_view.wait_for(log.end().next_offset - 1, WAIT_S)
                    assert as_tables(late.gateway.view) == as_tables(one.gateway.view)
                    assert late.gateway.view.epoch > 0

    asyncio.run(main())
    log.close()


def test_another_gateways_events_are_folded_while_one_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are read after the log's end was asked for hold more than it: nothing is missing."""
    log = open_log(f"sqlite://{tmp_path / 'events.db'}")
    first = _append(log, make.register("b:1"))
    read_tables = Gateway._first_view

    with FoldThread(log, tmp_path / "lake") as fold:
        fold.wait_for(first.offset)

        def read_later(self: Gateway) -> RouteView:
            appended = _append(log, make.put("n", "k", "v"))
            fold.wait_for(appended.offset)
            return read_tables(self)

        async def main() -> None:
            async with gateway(tmp_path, log) as late:
                assert late.gateway.view.kv_get("n", "k") == "v"

        monkeypatch.setattr(Gateway, "_first_view", read_later)
        asyncio.run(main())
    log.close()


def test_ready_without_a_fold(tmp_path: Path) -> None:
    """The fold's check says what is wrong, and does not count."""
    log = open_log(f"sqlite://{tmp_path / 'events.db'}")

    async def main() -> None:
        async with gateway(tmp_path, log) as parts:
            transport = httpx.ASGITransport(parts.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
                answer = await client.get("/readyz")
            assert answer.status_code == 200
            assert not answer.json()["checks"]["fold"]["ok"]
            assert answer.json()["checks"]["liveView"] == {"ok": True}
            close_app(parts.app)

    asyncio.run(main())
    log.close()


def test_a_log_that_is_lost_is_told(tmp_path: Path) -> None:
    """The last view stays, and the head goes on when the log can be read again."""
    log = open_log(f"sqlite://{tmp_path / 'events.db'}")

    class Reader:
        def __init__(self) -> None:
            self.lost = False

        def read(
            self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
        ) -> list[LogRecord]:
            if self.lost:
                raise UnavailableError("lost")
            return log.read(start_offset, max_records, max_bytes)

        def kept_from(self, offset: int) -> int:
            return log.kept_from(offset)

        def close(self) -> None:
            pass

    reader = Reader()
    views: list[RouteView] = []
    head = LiveReplica(lambda: reader, lambda view, offset, outcomes: views.append(view), poll_s=0.002)
    _append(log, make.put("n", "k", "1"))
    assert head.begin(RouteView.empty()).kv_get("n", "k") == "1"
    head.start()
    reader.lost = True
    wait_until(lambda: head.failing, WAIT_S, "the head to fail")
    _append(log, make.put("n", "k", "2"))
    assert views[-1].kv_get("n", "k") == "1"
    reader.lost = False
    wait_until(lambda: views[-1].kv_get("n", "k") == "2", WAIT_S, "the head to go on")
    assert not head.failing
    head.stop()
    log.close()


def test_records_that_wait_for_the_head_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they are dropped: the log has them."""
    monkeypatch.setattr("api.live_view.replica._MOST_WAITING_BYTES", 1_000)
    head = LiveReplica(lambda: pytest.fail("not opened"), lambda *_: None)
    record = LogRecord(1, 1, "k", b"x" * 300)
    for _ in range(10):
        head.feed([record])
    assert head.waiting_bytes == 900
    assert [len(head._next_fed(0.0)) for _ in range(3)] == [1, 1, 1]
    assert head.waiting_bytes == 0

# SPDX-License-Identifier: Apache-2.0
"""A running door for tests: gateway, application and the real fold, on an event loop in a thread of its own.

Tests are plain functions: `Door.get` and its like run the request on that loop and return the answer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx

from api.gateway import Gateway, GatewaySettings
from api.http.app import HttpApp, close_app, create_app
from api.http.settings import HttpSettings
from api.http.shapes import ProblemDetails
from api.view.history import History
from pipelines.log.base import LogEnd
from pipelines.log.memory import MemoryLog
from schemas.events import AnyEvent, Clock, decode
from tests.support.appender import HereAppender
from tests.support.local import UNHURRIED
from tests.support.minifold import MiniFold

T = TypeVar("T")

JSON = {"content-type": "application/json"}


class Loop:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Door:
    """Gateway and application over a memory log; the fold follows unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        *,
        http: HttpSettings | None = None,
        fold: bool = True,
        liveness_interval_s: float = 0.05,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.lake_dir = folder / "lake"
        self.fold = MiniFold(self.log, self.lake_dir, liveness_interval_s=liveness_interval_s) if fold else None
        if self.fold is not None:
            self.fold.start()
        self.loop = Loop()
        settings = {"gateway_id": "gw", "clock_interval_s": 0.05, **UNHURRIED, **settings}
        chosen = GatewaySettings(lake_dir=self.lake_dir, **settings)
        self.gateway = Gateway(chosen, HereAppender(self.log, chosen))
        self.loop.run(self.gateway.start())
        self.app: HttpApp = create_app(self.gateway, History(self.lake_dir), settings=http or HttpSettings())
        self._clients: dict[tuple[str, int], httpx.AsyncClient] = {}

    def close(self) -> None:
        close_app(self.app)
        for client in self._clients.values():
            self.loop.run(client.aclose())
        self.loop.run(self.gateway.stop())
        self.loop.close()
        if self.fold is not None:
            self.fold.stop()
        self.log.close()

    def client(self, peer: tuple[str, int] = ("127.0.0.1", 50000)) -> httpx.AsyncClient:
        if peer not in self._clients:
            transport = httpx.ASGITransport(self.app, client=peer)
            self._clients[peer] = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
        return self._clients[peer]

    def send(
        self, method: str, url: str, *, peer: tuple[str, int] = ("127.0.0.1", 50000), **more: Any
    ) -> httpx.Response:
        return self.loop.run(self.client(peer).request(method, url, timeout=60, **more))

    def begin(self, method: str, url: str, **more: Any) -> Any:
        """Start a request; the result's ``result(timeout)`` is its answer."""
        return self.loop.start(self.client().request(method, url, timeout=60, **more))

    def get(self, url: str, **more: Any) -> httpx.Response:
        return self.send("GET", url, **more)

    def post(self, url: str, body: Any = None, **more: Any) -> httpx.Response:
        if body is not None:
            more["content"] = json.dumps(body).encode()
            more["headers"] = {**JSON, **more.get("headers", {})}
        return self.send("POST", url, **more)

    def put(self, url: str, body: Any, **more: Any) -> httpx.Response:
        return self.send("PUT", url, content=json.dumps(body).encode(), headers=JSON, **more)

    def delete(self, url: str, **more: Any) -> httpx.Response:
        return self.send("DELETE", url, **more)

    def register(self, broker: dict[str, Any], **more: Any) -> httpx.Response:
        return self.post("/v1/brokers/register", broker, **more)

    def written_since(self, before: LogEnd) -> list[AnyEvent]:
        """What came to the log, but for the CLOCK that an earlier request had waited for."""
        events = (decode(record.payload) for record in self.log.read(before.next_offset))
        return [event for event in events if not isinstance(event, Clock)]

    def settled(self) -> int:
        """Wait until the fold and the view have everything; the last offset."""
        last = self.log.end().next_offset - 1
        assert self.fold is not None
        self.fold.wait_for(last)
        assert self.loop.run(self.gateway.wait_for(last, 30))
        return last


def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it never came true"
        pause.wait(0.002)


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """Check that an answer is a problem of this kind; its members."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    ProblemDetails.model_validate(found)
    assert found["type"] == f"urn:routelake:problem:{slug}"
    assert found["status"] == status
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    return found


def broker(
    name: str = "broker-a",
    *,
    topics: tuple[str, ...] = ("orders", "payments"),
    cluster: str = "c1",
    host: int = 1,
    counter: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """A registration."""
    return {
        "clusterName": cluster,
        "brokerName": name,
        "brokerAddr": f"10.0.0.{host}:10911",
        "brokerId": 0,
        "haServerAddr": f"10.0.0.{host}:10912",
        "topicConfigSerializeWrapper": {
            "dataVersion": {"stateVersion": 0, "timestamp": 1_700_000_000_000, "counter": counter},
            "topicConfigTable": {
                topic: {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6} for topic in topics
            },
        },
        **more,
    }

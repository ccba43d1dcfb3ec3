# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a gateway in this process, asked without sockets: tests are plain functions.

`HttpApi.get` and its like run the request on the gateway's loop and return the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from api.http.answers import ProblemDetails
from api.http.settings import HttpSettings
from dev.support.fold import FoldThread
from dev.support.local import LocalLake
from dev.support.loops import until
from eventlog.base import Clock as LogClock
from eventlog.base import LogEnd, now_ms
from schemas.events import AnyEvent, Clock, decode

T = TypeVar("T")

JSON = {"content-type": "application/json"}


class HttpApi:
    """Gateway and application over a memory log; the fold follows unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        *,
        http: HttpSettings | None = None,
        fold: bool = True,
        liveness_interval_s: float = 0.05,
        clock: LogClock = now_ms,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.lake = LocalLake(folder, folds=fold, liveness_interval_s=liveness_interval_s, clock=clock)
        self.lake.start()
        self.log, self.lake_dir = self.lake.log, self.lake.lake_dir
        settings = {"gateway_id": "gw", "clock_interval_s": 0.05, "remoting_port": None, **settings}
        self._local = self.lake.gateway(http=http or HttpSettings(), **settings)
        self._local.start()
        self.loop, self.gateway, self.app = self._local.loop, self._local.gateway, self._local.app
        self.access = self._local.parts.access
        self._clients: dict[tuple[str, int], httpx.AsyncClient] = {}

    def close(self) -> None:
        for client in self._clients.values():
            self.loop.start(client.aclose()).result(60)
        self._local.stop()
        self.lake.close()

    @property
    def fold(self) -> FoldThread:
        return self.lake.fold

    def client(self, peer: tuple[str, int] = ("127.0.0.1", 50000)) -> httpx.AsyncClient:
        if peer not in self._clients:
            transport = httpx.ASGITransport(self.app, client=peer)
            self._clients[peer] = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
        return self._clients[peer]

    def send(
        self, method: str, url: str, *, peer: tuple[str, int] = ("127.0.0.1", 50000), **more: Any
    ) -> httpx.Response:
        client = self.client(peer)
        client.cookies.clear()  # each request says all that it says
        return self.loop.run(client.request(method, url, timeout=60, **more))

    def begin(self, method: str, url: str, **more: Any) -> Future[httpx.Response]:
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
        """Return the events since a point of the log, but for the CLOCK that an earlier request had waited for."""
        events = (decode(record.payload) for record in self.log.read(before.next_offset))
        return [event for event in events if not isinstance(event, Clock)]

    def settled(self) -> int:
        """Wait until the tables and both views have everything; the last offset."""
        last = self.log.end().next_offset - 1
        self.fold.wait_for(last)
        committed, live_view = self.gateway.committed, self.gateway.live_view
        for moving in (committed, live_view):
            assert self.loop.run(moving.wait_for(last, 30))
        until(lambda: live_view.view.epoch == committed.view.epoch)  # which answers name
        return last


def parsed(answer: httpx.Response, kind: type[T]) -> T:
    """The body of an answer, which must be of a type."""
    return msgspec.json.decode(answer.content, type=kind)


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """Check that an answer is a problem of this kind; its members."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    parsed(answer, ProblemDetails)
    assert found["type"] == f"urn:routelake:problem:{slug}"
    assert found["status"] == status
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    return found


def broker(
    name: str = "broker-a",
    *,
    topics: Sequence[str] | Mapping[str, int] = ("orders", "payments"),
    cluster: str = "c1",
    host: int = 1,
    counter: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """The body of a registration; topics have 8 queues unless told otherwise."""
    queues = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 8)
    return {
        "clusterName": cluster,
        "brokerName": name,
        "brokerAddr": f"10.0.0.{host}:10911",
        "brokerId": 0,
        "haServerAddr": f"10.0.0.{host}:10912",
        "topicConfigSerializeWrapper": {
            "dataVersion": {"stateVersion": 0, "timestamp": 1_700_000_000_000, "counter": counter},
            "topicConfigTable": {
                topic: {"topicName": topic, "readQueueNums": nums, "writeQueueNums": nums, "perm": 6}
                for topic, nums in queues.items()
            },
        },
        **more,
    }

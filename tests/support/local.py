# SPDX-License-Identifier: Apache-2.0
"""routelake in this process: gateways with the remoting door, the real fold and the real Delta writer, no Spark.

One control plane per `LocalLake`; as many gateways over it as a test wants, each on an event loop of its own::

    with LocalLake(tmp_path) as lake, lake.gateway() as one, lake.gateway(order_message_enable=True) as two:
        with one.connect() as client:
            client.call(Request(codes.GET_NAMESRV_CONFIG))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from api.gateway import Gateway, GatewaySettings
from api.metrics import Metrics
from api.remoting.handlers import NameServerHandler
from api.remoting.metering import RemotingMeter
from pipelines.log.memory import MemoryLog
from remoting.server import RemotingServer, RemotingSettings
from tests.model import codes
from tests.model.client import RemotingClient
from tests.model.wire import Request
from tests.support.appender import HereAppender
from tests.support.minifold import MiniFold

UNHURRIED: Final[dict[str, Any]] = {"poll_s": 0.002, "gap_s": 3600.0, "visible_wait_s": 30.0}
"""Settings with which nothing but a test's own deadline depends on how busy the machine is: a write waits until the
fold has it, and a pause of the whole process is no gap."""


class LocalGateway:
    """One gateway. `port`, `gateway` and `metrics` are there while it runs."""

    def __init__(self, log: MemoryLog, lake_dir: Path, bounds: RemotingSettings | None, **settings: Any) -> None:
        self._log, self._bounds = log, bounds
        self._settings = GatewaySettings(lake_dir=lake_dir, **{"gateway_id": "local", **UNHURRIED, **settings})
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, *, binary: bool = False) -> RemotingClient:
        return RemotingClient("127.0.0.1", self.port, binary=binary)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._main, name="local-gateway")
        self._thread.start()
        assert self._ready.wait(30)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.gateway = Gateway(self._settings, HereAppender(self._log, self._settings))
        await self.gateway.start()
        self.metrics = Metrics()
        handler = NameServerHandler(self.gateway, metrics=self.metrics)
        server = RemotingServer(handler, self._bounds)
        RemotingMeter(server, self.metrics)
        await server.start("127.0.0.1", 0)
        self.port = server.port
        self._ready.set()
        await self._stop.wait()
        handler.stop()
        await server.close(1.0)
        await self.gateway.stop()


class LocalLake:
    """A log, a fold and a lake."""

    def __init__(self, folder: Path, **fold: Any) -> None:
        self.lake_dir = folder / "lake"
        self.log = MemoryLog()
        self.fold = MiniFold(self.log, self.lake_dir, **fold)

    def gateway(self, bounds: RemotingSettings | None = None, **settings: Any) -> LocalGateway:
        return LocalGateway(self.log, self.lake_dir, bounds, **settings)

    def __enter__(self) -> Self:
        self.fold.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.fold.stop()
        self.log.close()


@contextmanager
def local_client(folder: Path, bounds: RemotingSettings | None = None, **settings: Any) -> Iterator[RemotingClient]:
    """A client of the only gateway of a new lake."""
    with LocalLake(folder) as lake, lake.gateway(bounds, **settings) as gateway, gateway.connect() as client:
        yield client


def config_of(client: RemotingClient) -> dict[str, str]:
    """What GET_NAMESRV_CONFIG shows."""
    lines = client.call(Request(codes.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)

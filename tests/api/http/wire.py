# SPDX-License-Identifier: Apache-2.0
"""A connection to the HTTP API in memory: what arrives in which segments is decided by the test, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from api.gateway.metrics import Metrics
from api.gateway.registrations import Registrations
from api.http.app import HttpApp, create_app
from api.http.bounds import ConnectionBounds
from api.http.context import HttpContext
from api.http.csrf import Client
from api.http.fast_path import FastRoutes
from api.http.heads import Headers
from api.http.protocol import GuardedProtocol, Listener
from api.http.settings import HttpSettings
from api.wiring import answers_of
from dev.support.executed import Executed
from dev.support.http_api import HttpApi
from lake.history.history import History

PATH = b"/v1/topics/orders/route"
DATE = [(b"date", b"Sat, 21 Nov 2026 13:00:00 GMT")]


class CountingRoutes(FastRoutes):
    """Counts what it answers."""

    hits = 0

    def answer(
        self, client: Client, target: bytes, headers: Headers, defaults: Headers, has_certificate: bool
    ) -> tuple[bytes, ...] | None:
        found = super().answer(client, target, headers, defaults, has_certificate)
        self.hits += found is not None
        return found


class NoRoutes(CountingRoutes):
    """Leaves everything to the application."""

    def answer(self, client: Client, target: bytes, headers: Headers, defaults: Headers, has_certificate: bool) -> None:
        return None


class Transport:
    """Keeps what is written; the protocol learns of a close on the next turn of the loop, as uvloop does."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        self.written = bytearray()
        self.closed = False
        self.reading = True
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8080)}.get(name, default)

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.written += b"".join(parts)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
            del self._protocol  # as uvloop does

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0


class Wire:
    """A server in memory; `connect` as often as wanted. Use it on the gateway's loop: see `exchange`."""

    def __init__(
        self, app: HttpApp, routes: type[CountingRoutes] = CountingRoutes, front: Executed | None = None
    ) -> None:
        self.app, context = app, app.context
        self.fast = routes(
            context.gateway, context.answers[context.gateway.settings.reads], context.metrics, app.sites, context.guard
        )
        config = Config(front or app, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
        config.timeout_keep_alive = context.settings.keep_alive_s
        self.state = ServerState()
        self.state.default_headers = DATE
        self._config = config
        fast = self.fast if front is None else front.fast_routes
        bounds = ConnectionBounds(context.settings)
        self._listener = Listener(context.settings, context.metrics, fast, bounds, context.refusals)

    def connect(self) -> Connection:
        return Connection(GuardedProtocol(self._listener, self._config, self.state, {}), self.state)


class Connection:
    """One connection."""

    def __init__(self, protocol: Any, state: ServerState) -> None:
        self.protocol = protocol
        self.transport = Transport(protocol)
        self.state = state
        protocol.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        """A segment arrives; what arrives after the end is lost."""
        if not self.transport.closed:
            self.protocol.data_received(data)

    async def idle(self) -> None:
        """Wait until everything asked is answered."""
        while self.state.tasks:
            await asyncio.wait(set(self.state.tasks))
        await asyncio.sleep(0)

    def take(self) -> bytes:
        """What was written since the last time."""
        found = bytes(self.transport.written)
        self.transport.written.clear()
        return found

    async def end(self) -> None:
        """The client goes."""
        self.transport.close()
        await self.idle()


def exchange(api: HttpApi, wire: Wire, segments: Sequence[bytes], *, waiting: bool = True) -> list[bytes]:
    """What a connection says after each segment, waiting for its answers or not, and at its end."""

    async def talk() -> list[bytes]:
        connection, found = wire.connect(), []
        for segment in segments:
            while not (connection.transport.reading or connection.transport.closed):
                await connection.idle()
            connection.feed(segment)
            if waiting:
                await connection.idle()
                found.append(connection.take())
        await connection.idle()
        found.append(connection.take())
        found.append(b"closed" if connection.transport.closed else b"open")
        await connection.end()
        return found

    return api.loop.run(talk())


def get(path: bytes = PATH, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """A request without a body."""
    return b"%b %b HTTP/%b\r\n%b\r\n" % (
        method,
        path,
        version,
        b"".join(h + b"\r\n" for h in (b"Host: localhost", *headers)),
    )


def wires(api: HttpApi, **settings: Any) -> tuple[Wire, Wire]:
    """Two servers over one gateway: one with the fast path, one without."""
    gateway = api.gateway
    history = History(str(gateway.settings.lake_dir))

    def app() -> HttpApp:
        metrics = Metrics()
        context = HttpContext(
            gateway,
            history,
            settings=HttpSettings(**settings),
            answers=answers_of(gateway),
            metrics=metrics,
            registrations=Registrations(gateway, metrics),
        )
        return create_app(context)

    return Wire(app()), Wire(app(), NoRoutes)


def tag(api: HttpApi, topic: str = "orders") -> bytes:
    """The entity tag of a route."""
    return str(api.get(f"/v1/topics/{topic}/route").headers["etag"]).encode()

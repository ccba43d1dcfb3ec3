# SPDX-License-Identifier: Apache-2.0
"""routelake in this process: gateways with their APIs, the real fold and the real Delta writer, no Spark.

One control plane per `LocalLake`; as many gateways over it as a test wants, each on an event loop of its own::

    with LocalLake(tmp_path) as lake, lake.gateway() as one, lake.gateway(order_message_enable=True) as two:
        with one.connect() as client:
            client.call(Request(codes.GET_NAMESRV_CONFIG))

If the fold fails, every wait for a gateway ends at once: calls of its loop raise what the fold raised, and its connections
are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from api.gateway.gateway import Gateway
from api.http.app import HttpApp, close_app
from api.http.server import serve_http
from api.http.settings import HttpSettings
from api.settings.gateway import GatewaySettings
from api.wiring import GatewayParts
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.fold import FoldThread
from dev.support.log_client import LocalLogClient
from dev.support.loops import Loop
from dev.support.memory_log import MemoryLog
from eventlog.base import Clock, EventLog, now_ms
from eventlog.open import open_log
from remoting.server.settings import RemotingSettings
from runtime.supervised_tasks import on_death
from security.accounts_file import AccountsFile
from security.policy import Policy
from security.quotas import Quotas
from security.tls_rotation import Tls

UNHURRIED: Final[dict[str, Any]] = {
    "poll_s": 0.002,
    "gap_s": 3600.0,
    "live_view_wait_s": 30.0,
}
"""Settings with which nothing but a test's own deadline depends on how busy the machine is: a write waits until the
head has it, and a pause of the whole process is no gap."""

_STOP_S = 20.0


def assert_no_difference(gateway: Gateway) -> None:
    """Head and tables are folded by the same rules from the same log: whatever differs is a defect."""
    assert not gateway.replica.checks.differences, gateway.replica.checks.reports


class SharedReader:
    """Reads a log that others close."""

    def __init__(self, log: EventLog) -> None:
        self.read, self.kept_from = log.read, log.kept_from

    def close(self) -> None:
        pass


class LocalGateway:
    """One gateway, which may be started again after a stop; `parts` are those of its last start.

    Args:
        log: Event log that it writes; the caller closes it.
        remoting: Settings of the remoting listener.
        http: Settings of the HTTP API.
        policy: Mode and rules of access control.
        accounts: File of the accounts.
        tls: TLS of both listeners; the files are not watched.
        quotas: Limits for one peer.
        remoting_port: Port; 0 for any; None for no listener.
        http_port: Port; 0 for any; None for no listener: the HTTP API is there all the same, as `app`.
        clock: Clock of the log.
        settings: Settings of the gateway, on top of `UNHURRIED`.
    """

    def __init__(
        self,
        log: EventLog,
        lake_dir: Path,
        remoting: RemotingSettings | None = None,
        http: HttpSettings | None = None,
        *,
        policy: Policy | None = None,
        accounts: AccountsFile | None = None,
        tls: Tls | None = None,
        quotas: Quotas | None = None,
        remoting_port: int | None = 0,
        http_port: int | None = None,
        clock: Clock = now_ms,
        **settings: Any,
    ) -> None:
        self.log, self.lake_dir = log, lake_dir
        self.port, self.http_port = remoting_port or 0, http_port or 0
        self._listens, self._serves_http = remoting_port is not None, http_port is not None
        self._remoting, self._http = remoting, http
        self._policy, self._accounts, self._tls, self._quotas = policy, accounts, tls, quotas
        self._settings = GatewaySettings(lake_dir=lake_dir, **{"gateway_id": "local", **UNHURRIED, **settings})
        self.parts: GatewayParts
        self.loop: Loop

    @property
    def gateway(self) -> Gateway:
        return self.parts.gateway

    @property
    def app(self) -> HttpApp:
        return self.parts.app

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def connect(self, *, binary: bool = False) -> RemotingClient:
        return RemotingClient("127.0.0.1", self.port, binary=binary)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; when this returns, it listens."""
        self.loop = Loop("local-gateway")
        self._deaths: list[BaseException] = []
        self._forget = on_death(self._died)
        self.loop.run(self._start())

    def stop(self) -> None:
        """Stop it in order: listeners first."""
        try:
            self.loop.start(self._end()).result(_STOP_S)
            self.loop.close()
        finally:
            self._forget()
        for error in (*self._deaths, *self.loop.errors):
            raise error
        assert_no_difference(self.gateway)

    def _died(self, what: str, error: BaseException) -> None:
        """A task that no gateway of this process can do without."""
        error.add_note(f"of: {what}")
        self._deaths.append(error)
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the waits for events of this gateway: no fold applies them any more."""
        self.loop.fail(error)
        self.loop.call(partial(asyncio.ensure_future, self.parts.close_remoting(0.0), loop=self.loop.loop))

    async def _start(self) -> None:
        client = LocalLogClient(self.log, self._settings)
        self.parts = GatewayParts(
            self._settings,
            client,
            lambda: SharedReader(self.log),
            self._remoting,
            self._http,
            policy=self._policy,
            accounts=self._accounts,
            tls=self._tls,
            quotas=self._quotas,
        )
        await self.parts.gateway.start()
        self.parts.access.start()
        if self._listens:
            await self.parts.server.start("127.0.0.1", self.port)
            self.port = self.parts.server.port
        if self._serves_http:
            self._stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
            serving = serve_http(
                self.app,
                "127.0.0.1",
                self.http_port,
                stop=self._stop,
                on_bound=bound.set_result,
                tls=None if self._tls is None else self._tls.http,
                handshakes=self.parts.handshakes,
            )
            self._serving_http = asyncio.create_task(serving)
            await asyncio.wait({self._serving_http, bound}, return_when=asyncio.FIRST_COMPLETED)
            if self._serving_http.done():
                await self._serving_http  # and say why
            self.http_port = bound.result()

    async def _end(self) -> None:
        if self._serves_http:
            self._stop.set()
            await self._serving_http
        await self.parts.close_remoting(1.0)
        if "app" in vars(self.parts):
            close_app(self.app)
        self.parts.access.stop()
        await self.parts.gateway.stop()


class LocalLake:
    """A log, a fold and a lake.

    Args:
        folder: Folder for the lake, and for the log unless it is in memory.
        log_url: URL as for `open_log`; each gateway then opens the log for itself. By default one log in memory.
        folds: Whether a fold runs.
        clock: Clock of the log in memory: event times, in milliseconds.
        fold: Arguments of `FoldThread`.
    """

    def __init__(
        self, folder: Path, *, log_url: str | None = None, folds: bool = True, clock: Clock = now_ms, **fold: Any
    ) -> None:
        self.lake_dir = folder / "lake"
        self._clock = clock
        self._log_url = log_url
        self.log: EventLog = self._open_log()
        self._logs = [self.log]
        self._gateways: list[LocalGateway] = []
        self._fold = FoldThread(self.log, self.lake_dir, on_error=self._fail, **fold) if folds else None

    @property
    def fold(self) -> FoldThread:
        assert self._fold is not None, "nothing folds here"
        return self._fold

    def gateway(
        self, remoting: RemotingSettings | None = None, http: HttpSettings | None = None, **settings: Any
    ) -> LocalGateway:
        """A gateway over this lake; see `LocalGateway`."""
        if self._log_url is not None:
            self._logs.append(self._open_log())
        self._gateways.append(
            LocalGateway(self._logs[-1], self.lake_dir, remoting, http, clock=self._clock, **settings)
        )
        return self._gateways[-1]

    def start(self) -> None:
        if self._fold is not None:
            self._fold.start()

    def close(self) -> None:
        """Stop the fold. Raises what went wrong there."""
        try:
            if self._fold is not None:
                self._fold.stop()
        finally:
            for log in self._logs:
                log.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open_log(self) -> EventLog:
        return MemoryLog(self._clock) if self._log_url is None else open_log(self._log_url)

    def _fail(self, error: BaseException) -> None:
        for gateway in self._gateways:
            gateway.fail(error)


@contextmanager
def local_client(folder: Path, bounds: RemotingSettings | None = None, **settings: Any) -> Iterator[RemotingClient]:
    """A client of the only gateway of a new lake."""
    with LocalLake(folder) as lake, lake.gateway(bounds, **settings) as gateway, gateway.connect() as client:
        yield client


def config_of(client: RemotingClient) -> dict[str, str]:
    """Return the answer to GET_NAMESRV_CONFIG."""
    lines = client.call(Request(codes.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)

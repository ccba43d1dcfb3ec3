"""The listening side: accepts connections, keeps count of them, watches the clock, and closes in good order.

What happens on a connection is in `api.remoting.channel`.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer, NettyServerConfig.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from api.remoting.answers import failure
from api.remoting.channel import CLOSE_GRACE_S, Connection, Handler, RemotingSettings
from api.remoting.frame import RemotingCommand
from api.remoting.route_query import RouteQueryCache
from api.remoting.turns import Turns
from schemas.codes import RequestCode
from schemas.errors import RoutelakeError, SetupError

__all__ = ["Connection", "Handler", "RemotingServer", "RemotingSettings"]

log = logging.getLogger("routelake.remoting")

_REQUEST_CODES: Final = frozenset(map(int, RequestCode))


class RemotingServer:
    """Listens for peers.

    Attributes:
        connections: The open ones by id.
        queries: Route requests seen on any connection.
        accepted: Connections so far.
        rejected: Connections over the limit so far.
        refused: Connections closed for what they sent, so far.
        failed: Requests whose handling raised something unexpected, so far.
        routes: Route requests answered in the turn they came in, by response code, so far.
        answered: The other requests answered, by (RequestCode, response code), so far; -1 for codes nobody knows.
        unfinished_bytes: Held of frames that have begun but not ended.
        turns: Of the connections in the middle of a large frame.
        now: The event loop's time at the last tick.
    """

    def __init__(self, handler: Handler, settings: RemotingSettings | None = None) -> None:
        """Prepare; `start` listens.

        Args:
            handler: Answers requests.
            settings: Bounds.
        """
        self.handler = handler
        self.settings = settings or RemotingSettings()
        self.connections: dict[str, Connection] = {}
        self.queries = RouteQueryCache()
        self.accepted = self.rejected = self.refused = self.failed = 0
        self.routes: defaultdict[int, int] = defaultdict(int)
        self.answered: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.unfinished_bytes = 0
        self.turns = Turns()
        self.now = 0.0
        self.is_closing = False
        self._run_id = secrets.token_hex(6)
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: Name or address; "" for all interfaces.
            port: 0 for a free one.

        Raises:
            SetupError: The address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self),
                host or None,
                port,
                backlog=self.settings.backlog,
                reuse_port=self.settings.reuse_port or None,
            )
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        self._ticker = loop.create_task(self._tick())

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None or not self._server.sockets:
            raise SetupError("the remoting server is not listening")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self, grace_s: float = 10.0) -> None:
        """Stop accepting, finish what was received, close.

        Args:
            grace_s: How long requests in flight may take.
        """
        self.is_closing = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections.values()):
            connection.stop_reading()
        while self._tasks and loop.time() < deadline:
            await asyncio.wait(self._tasks, timeout=deadline - loop.time())
        for connection in list(self.connections.values()):
            connection.close("server stops")
        if self.connections:
            self._all_gone.clear()
            try:
                await asyncio.wait_for(self._all_gone.wait(), min(CLOSE_GRACE_S, max(1.0, deadline - loop.time())))
            except TimeoutError:
                for connection in list(self.connections.values()):
                    connection.abort("server stops")
        if self._ticker is not None:
            self._ticker.cancel()
        for task in list(self._tasks):
            task.cancel()

    # --- for Connection ---

    def admit(self, connection: Connection) -> bool:
        """Count a connection in, unless there are too many."""
        if self.is_closing or len(self.connections) >= self.settings.max_connections:
            self.rejected += 1
            return False
        self.accepted += 1
        connection.id = f"{self._run_id}-{self.accepted}"
        self.connections[connection.id] = connection
        return True

    def release(self, connection: Connection) -> None:
        """Count it out."""
        self.connections.pop(connection.id, None)
        if not self.connections:
            self._all_gone.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a request; the server keeps the task alive."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def failure(self, error: Exception, connection: Connection) -> RemotingCommand:
        """The answer to a request whose handling raised; the unexpected is logged."""
        if not isinstance(error, RoutelakeError):
            self.failed += 1
            log.error("request of %s failed", connection.peer, exc_info=error)
        return failure(error)

    def count(self, request_code: int, response_code: int) -> None:
        """Count an answer. Peers may invent any number of codes, and each would stay here for ever."""
        self.answered[request_code if request_code in _REQUEST_CODES else -1, response_code] += 1

    def guard(self, callback: Callable[[Connection], None], connection: Connection) -> None:
        """Call back; what it raises must not take the connection down."""
        try:
            callback(connection)
        except Exception:
            self.failed += 1
            log.exception("callback for %s failed", connection.peer)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.tick_s)
            self.now = loop.time()
            for connection in list(self.connections.values()):
                connection.tick(self.now)


def _cannot_listen(host: str, port: int, error: OSError) -> SetupError:
    """Why the address cannot be listened on, and what to change."""
    remedy = {
        errno.EADDRINUSE: "another process listens there: stop it, or choose another port",
        errno.EACCES: "ports below 1024 need privileges: choose a higher one",
        errno.EADDRNOTAVAIL: "that is no address of this machine: choose one, or 0.0.0.0 for all",
    }.get(error.errno or 0, f"{error.strerror or error}: choose another address")
    return SetupError(
        f"cannot listen for remoting on {host or '*'}:{port}: {remedy} with --remoting HOST:PORT (ROUTELAKE_REMOTING)",
        host=host,
        port=port,
    )

# SPDX-License-Identifier: Apache-2.0
"""The listening side of remoting: accepts and counts connections, checks deadlines, and closes in an orderly way.

`remoting.server.channel` handles each connection.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer, NettyServerConfig.

If the system has no file descriptor for a new connection, asyncio logs every try. uvloop logs nothing: libuv closes
the waiting connections silently. This module counts the refusal, evicts a connection, and tries again after a short
time. Meanwhile the new connections wait in the backlog.

Source: accept(2), EMFILE to ENOMEM; libuv 1.x src/unix/stream.c, uv__emfile_trick.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine
from heapq import nsmallest
from typing import Any, Final

from remoting.codec.bounds import SEARCH_PAUSE_S
from remoting.codec.connection import RequestCache
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import failure
from remoting.errors import why_not_listening
from remoting.server.channel import CLOSE_GRACE_S, Connection, Handler, InlineAuthorizer
from remoting.server.memory import ConnectionMemory
from remoting.server.refusals import Refusals
from remoting.server.settings import RemotingSettings
from remoting.server.tls import Handshakes
from remoting.server.tls_channel import HANDSHAKE_S, ListenerTls, TlsSniffer
from schemas.codes import RequestCode
from schemas.errors import RoutelakeError, SetupError

log = logging.getLogger("routelake.remoting")

_IDLEST: Final = 64
"""Maximum number of connections that one search selects for eviction."""

_EVERY_ADDRESS: Final = "*"

OF_ADDRESS: Final = "quota-connections"
"""Reason to refuse or close a connection: its address has too many connections."""

_REQUEST_CODES: Final = frozenset(map(int, RequestCode))


class RemotingServer:
    """Server of the remoting protocol on one port.

    Attributes:
        connections: Open connections by id.
        accepted: Number of accepted connections since the start.
        failed: Number of unexpected exceptions in requests and callbacks since the start.
        answered_inline: Number of answers to recognised requests since the start, by response code.
        answered: Number of other answers since the start, by (RequestCode, response code). Unknown codes are -1.
        memory: Memory that all connections together hold.
        refusals: Connections refused or closed for protection, by reason.
        now: The event loop's time at the last tick.
    """

    def __init__(
        self,
        handler: Handler,
        settings: RemotingSettings | None = None,
        inline: RequestCache | None = None,
        gate: InlineAuthorizer | None = None,
        tls: ListenerTls | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        """Create a server. It listens after `start`.

        Args:
            handler: Handler of requests and connections.
            settings: Bounds.
            inline: Cache that recognises requests and answers them in the same turn of the loop.
            gate: Authorizer of the requests that `inline` recognises. None: no authorization.
            tls: TLS of the port. None: connections are plain.
            handshakes: Queue of TLS handshakes, if other ports share it.
        """
        self.handler = handler
        self.inline = inline
        self.gate = gate
        self._tls = tls
        self._handshakes = handshakes or Handshakes()
        self.settings = settings or RemotingSettings()
        self.connections: dict[str, Connection] = {}
        self._of_address: Counter[str] = Counter()
        self.accepted = self.failed = 0
        self.answered_inline: defaultdict[int, int] = defaultdict(int)
        self.answered: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.refusals = Refusals("remoting")
        self.memory = ConnectionMemory(self.settings, self.connections, self._evict)
        self.now = 0.0
        self.is_closing = False
        self._run_id = secrets.token_hex(6)
        self._loop: asyncio.AbstractEventLoop | None = None
        """From `start` on: to ask for the running loop is a system call in Python 3.11."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._idlest: deque[tuple[Connection, float]] = deque()
        self._none_idle_for: set[str] = set()
        """Addresses that get no place, because none is idle, or `_EVERY_ADDRESS`. Valid until `_next_look_s`."""
        self._next_look_s = 0.0
        self._silent: dict[str, deque[Connection]] = {}
        """Silent connections found in this tick, by address with too many connections."""
        self._all_gone = asyncio.Event()
        self._acceptor = Acceptor(self._protocol, self._accept_refused)
        self.ticker: asyncio.Task[None] | None = None
        """Task that checks deadlines from `start` to `close`. The caller of `start` must supervise it."""

    async def start(self, host: str, port: int, *, option: str = "") -> None:
        """Listen.

        Args:
            host: Name or address, or "" for all interfaces.
            port: Port, or 0 for a free port.
            option: Option that sets the address. The error message names it.

        Raises:
            SetupError: The address cannot be listened on.
        """
        loop = self._loop = asyncio.get_running_loop()
        self.now = loop.time()
        try:
            await self._acceptor.start(host, port, backlog=self.settings.backlog, reuse_port=self.settings.reuse_port)
        except OSError as error:
            raise _cannot_listen(host, port, error, option) from error
        self.ticker = loop.create_task(self._tick())

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        if not self._acceptor.sockets:
            raise SetupError("the remoting server is not listening")
        port: int = self._acceptor.sockets[0].getsockname()[1]
        return port

    async def close(self, grace_s: float = 10.0) -> None:
        """Stop accepting, finish the received requests, and close all connections.

        Args:
            grace_s: Time that requests in flight may take, in seconds.
        """
        self.is_closing = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        self._acceptor.close()
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
        if self.ticker is not None:
            self.ticker.cancel()
        for task in list(self._tasks):
            task.cancel()

    # --- for connections: channel.Server ---

    def admit(self, connection: Connection) -> bool:
        """Count a connection and give it an id. Returns False if the connection is refused.

        At `max_connections`, an idle connection of the address with most connections is evicted. At the limit of one
        address, a connection of this address that has sent nothing is evicted. Without one the new one is refused.
        """
        if self.is_closing:
            return False
        of_address, limit = self._of_address[connection.address], self.settings.max_connections_per_address
        if limit is not None and of_address >= limit and not self._make_room_at(connection.address):
            self.refusals.note(OF_ADDRESS, connection.peer, f"{of_address} of this address are open")
            return False
        if len(self.connections) >= self.settings.max_connections and not self._make_room(connection):
            self.refusals.note("too-many-connections", connection.peer, f"{len(self.connections)} are open")
            return False
        self.accepted += 1
        connection.id = f"{self._run_id}-{self.accepted}"
        self.connections[connection.id] = connection
        self._of_address[connection.address] += 1
        return True

    def _protocol(self) -> asyncio.Protocol:
        connection = Connection(self)
        return (
            connection
            if self._tls is None
            else TlsSniffer(connection, self._tls, self._handshakes, takes_preamble=True, handshake_s=HANDSHAKE_S)
        )

    def _accept_refused(self, error: OSError) -> None:
        """Evict an idle connection, because the system has no file descriptor or memory for a new one."""
        self.refusals.note("accept-failed", "", f"{error.strerror}; {len(self.connections)} connections are open")
        self._make_room(None)

    def _make_room(self, newcomer: Connection | None) -> bool:
        """Evict the connection that is idle for longest at the address with most. Returns False if none is idle."""
        if time.monotonic() >= self._next_look_s:
            self._none_idle_for.clear()
        if not self._none_idle_for.isdisjoint((newcomer.address if newcomer else "", _EVERY_ADDRESS)):
            return False
        for has_searched in (False, True):
            while self._idlest:
                connection, last_read = self._idlest.popleft()
                if connection.last_read == last_read and _may_go(connection, newcomer):
                    self._evict(connection, "evicted-idle", f"{len(self.connections)} connections are open")
                    return True
            if not has_searched:
                self._idlest = self._find_idlest(newcomer)
        return False

    def _make_room_at(self, address: str) -> bool:
        """Evict a connection of this address that has sent nothing and is older than the current tick.

        The search takes milliseconds, so it runs once in a tick, for several new connections.
        """
        silent = self._silent.get(address)
        if silent is None:
            silent = self._silent[address] = deque(
                found
                for found in self.connections.values()
                if found.address == address and not found.has_spoken and found.last_read < self.now
            )
        while silent:
            connection = silent.popleft()
            if not connection.has_spoken and connection.close_reason is None and connection.id in self.connections:
                self._evict(connection, OF_ADDRESS, "it said nothing, and its address has too many")
                return True
        return False

    def _find_idlest(self, newcomer: Connection | None) -> deque[tuple[Connection, float]]:
        """The connections to evict first: those without any request, then those that are idle for longest.

        All are of the addresses with most connections, at most an eighth of an address. Connections over which a broker
        has registered come last. The search takes milliseconds, so one search serves several new connections, also
        without result.
        """
        most = max(self._of_address.values(), default=0)
        idle: defaultdict[str, list[Connection]] = defaultdict(list)
        for connection in self.connections.values():
            if self._of_address[connection.address] == most and _may_go(connection, newcomer):
                idle[connection.address].append(connection)
        share = max(1, most // 8)
        found = [one for connections in idle.values() for one in nsmallest(share, connections, key=_idle_rank)]
        if not found:
            if not self._none_idle_for:
                self._next_look_s = time.monotonic() + SEARCH_PAUSE_S
            is_own = newcomer is None or self._of_address[newcomer.address] == most
            self._none_idle_for.add((newcomer.address if newcomer else "") if is_own else _EVERY_ADDRESS)
        return deque((one, one.last_read) for one in nsmallest(_IDLEST, found, key=_idle_rank))

    def _evict(self, connection: Connection, reason: str, detail: str) -> None:
        """Close a connection immediately, to make room for others."""
        self._forget(connection)
        self.refusals.note(reason, connection.peer, detail)
        connection.abort(f"{reason}: {detail}")

    def release(self, connection: Connection) -> None:
        """Remove a closed connection from the counts."""
        self._forget(connection)
        self.memory.forget(connection)
        if not self.connections:
            self._all_gone.set()

    def _forget(self, connection: Connection) -> None:
        if self.connections.pop(connection.id, None) is not None:
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a request as a task. The server keeps a reference to the task until it ends."""
        task = (self._loop or asyncio.get_running_loop()).create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def failure(self, error: Exception, connection: Connection) -> RemotingCommand:
        """The answer to a request after its handler raised an exception. An unexpected exception is logged."""
        if not isinstance(error, RoutelakeError):
            self.failed += 1
            log.error("unexpected error in a request, peer=%s", connection.peer, exc_info=error)
        return failure(error)

    def count(self, request_code: int, response_code: int) -> None:
        """Count an answer. Unknown request codes share one count, so that peers cannot make the counts grow."""
        self.answered[request_code if request_code in _REQUEST_CODES else -1, response_code] += 1

    def guard(self, callback: Callable[[Connection], None], connection: Connection) -> None:
        """Call a callback of the handler. An exception in it does not end the connection."""
        try:
            callback(connection)
        except Exception:
            self.failed += 1
            log.exception("unexpected error in a connection callback, peer=%s", connection.peer)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.tick_s)
            self.now = loop.time()
            self._silent.clear()
            self._idlest.clear()
            for connection in list(self.connections.values()):
                connection.tick(self.now)


def _may_go(connection: Connection, newcomer: Connection | None) -> bool:
    """Return whether an idle connection may be evicted. One with a registered broker stays for its own address."""
    is_own = newcomer is None or newcomer.address == connection.address
    return connection.is_idle and not (is_own and connection.has_registered)


def _idle_rank(connection: Connection) -> tuple[bool, bool, float]:
    """Sort key: the connections to evict first come first."""
    return connection.has_registered, connection.has_spoken, connection.last_read


def _cannot_listen(host: str, port: int, error: OSError, option: str) -> SetupError:
    """Return the error for an address that cannot be listened on, with the reason and the option to change."""
    how = f" with {option}" if option else ""
    where = f"[{host}]" if ":" in host else host or "*"
    return SetupError(
        f"cannot listen for remoting on {where}:{port}: {why_not_listening(error)}{how}", host=host, port=port
    )


REFUSALS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

RETRY_S: Final = 0.05

_AT_A_TIME: Final = 64
"""Maximum number of connections accepted in one turn of the loop."""


class Acceptor:
    """Listens on every address of a host. Belongs to one event loop.

    Attributes:
        sockets: Listening sockets.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], on_refused: Callable[[OSError], None]) -> None:
        """Create an acceptor. It listens after `start`.

        Args:
            protocol: Factory of the protocol of a connection.
            on_refused: Callback after the system has refused an accept. The callback may close connections.
        """
        self.sockets: list[socket.socket] = []
        self._protocol = protocol
        self._on_refused = on_refused
        self._tasks: set[asyncio.Task[object]] = set()

    async def start(self, host: str, port: int, *, backlog: int, reuse_port: bool) -> None:
        """Bind and listen, as `asyncio.loop.create_server` does.

        Raises:
            OSError: An address cannot be listened on. Then no address is.
        """
        self._loop = asyncio.get_running_loop()
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listener = socket.socket(family, kind, protocol)
                self.sockets.append(listener)
                listener.setblocking(False)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse_port:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(backlog)
        except OSError:
            self.close()
            raise
        for listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Stop listening."""
        for listener in self.sockets:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_A_TIME):
            try:
                accepted, _ = listener.accept()
            except OSError as error:
                if error.errno in REFUSALS:
                    self._loop.remove_reader(listener)
                    self._loop.call_later(RETRY_S, self._try_again, listener)
                    self._on_refused(error)
                return  # no connection waits, or the waiting one was closed
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, accepted))
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the connection was closed before the protocol was created

    def _try_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

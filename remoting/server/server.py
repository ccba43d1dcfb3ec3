# SPDX-License-Identifier: Apache-2.0
"""The listening side: accepts connections, keeps count of them, watches the clock, and closes in good order.

`remoting.server.channel` handles each connection.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer, NettyServerConfig.

asyncio logs a refused accept for each try, uvloop not at all: libuv closes whoever waits, silently. Here it is counted,
room is made, and the next try comes a moment later; meanwhile the others wait in the backlog.

Source: accept(2), EMFILE to ENOMEM; libuv 1.x src/unix/stream.c, uv__emfile_trick.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

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
"""Connections that are looked up at once, to be evicted for newcomers."""

OF_ADDRESS: Final = "quota-connections"
"""Reason to refuse or close a connection: its address has too many."""

_REQUEST_CODES: Final = frozenset(map(int, RequestCode))


class RemotingServer:
    """Listens for peers.

    Attributes:
        connections: The open ones by id.
        accepted: Connections so far.
        failed: Requests whose handling raised something unexpected, so far.
        answered_inline: Recognised requests answered, by response code, so far.
        answered: The others answered, by (RequestCode, response code), so far; -1 for unknown codes.
        memory: Memory that all connections hold together.
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
        """Prepare; `start` listens.

        Args:
            handler: Answers requests.
            settings: Bounds.
            inline: Answers what it recognises, within the turn of the loop in which it comes.
            gate: Judges what it recognises; None: nobody is asked who they are.
            tls: None: connections are plain.
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._idlest: deque[tuple[Connection, float]] = deque()
        self._silent: dict[str, deque[Connection]] = {}
        """By address that has too many connections, of this tick."""
        self._all_gone = asyncio.Event()
        self._acceptor = Acceptor(self._protocol, self._accept_refused)
        self.ticker: asyncio.Task[None] | None = None
        """Looks at deadlines from `start` to `close`. The caller of `start` has to watch it."""

    async def start(self, host: str, port: int, *, option: str = "") -> None:
        """Listen.

        Args:
            host: Name or address; "" for all interfaces.
            port: 0 for a free one.
            option: Option that sets the address; the error names it.

        Raises:
            SetupError: The address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        try:
            await self._acceptor.start(host, port, backlog=self.settings.backlog, reuse_port=self.settings.reuse_port)
        except OSError as error:
            raise _cannot_listen(host, port, error, option) from error
        self.ticker = loop.create_task(self._tick())

    @property
    def port(self) -> int:
        """The port it listens on."""
        if not self._acceptor.sockets:
            raise SetupError("the remoting server is not listening")
        port: int = self._acceptor.sockets[0].getsockname()[1]
        return port

    async def close(self, grace_s: float = 10.0) -> None:
        """Stop accepting, finish what was received, close.

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
        """Count a connection in. When there are too many, an idle one of the address that has most is evicted.

        An address that has as many as it may have loses one that has said nothing yet, or the newcomer.
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
        """The system has no file descriptor, or no memory, for a newcomer: evict an idle one."""
        self.refusals.note("accept-failed", "", f"{error.strerror}; {len(self.connections)} connections are open")
        self._make_room(None)

    def _make_room(self, newcomer: Connection | None) -> bool:
        """End the idlest connection of the address that has most; False if none of them is idle."""
        if not self._idlest:
            self._idlest = self._find_idlest(newcomer)
        while self._idlest:
            connection, last_read = self._idlest.popleft()
            if connection.is_idle and connection.last_read == last_read:
                self._evict(connection, "evicted-idle", f"{len(self.connections)} connections are open")
                return True
        return False

    def _make_room_at(self, address: str) -> bool:
        """End a connection of an address that has said nothing since it came, a moment ago at least.

        The search costs milliseconds, so it is made once a tick, for several newcomers at once.
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
        """The connections to evict first: silent from the start, then idle for longest.

        A connection over which a broker has registered goes last, and never for one of its own address. The search
        costs milliseconds, so it is made for several newcomers at once.
        """
        by_address: defaultdict[str, list[Connection]] = defaultdict(list)
        for connection in self.connections.values():
            by_address[connection.address].append(connection)
        most = max(by_address.values(), key=len, default=[])
        is_own = newcomer is None or not most or most[0].address == newcomer.address
        idle = [found for found in most if found.is_idle and not (is_own and found.has_registered)]
        idle.sort(key=lambda found: (found.has_registered, found.has_spoken, found.last_read))
        return deque((found, found.last_read) for found in idle[: max(1, min(_IDLEST, len(most) // 8))])

    def _evict(self, connection: Connection, reason: str, detail: str) -> None:
        """Drop a connection at once, for the sake of the others."""
        self._forget(connection)
        self.refusals.note(reason, connection.peer, detail)
        connection.abort(f"{reason}: {detail}")

    def release(self, connection: Connection) -> None:
        """Count it out."""
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
        """Run a request; the server keeps the task alive."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def failure(self, error: Exception, connection: Connection) -> RemotingCommand:
        """The answer to a request whose handling raised; the unexpected is logged."""
        if not isinstance(error, RoutelakeError):
            self.failed += 1
            log.error("unexpected error in a request, peer=%s", connection.peer, exc_info=error)
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
            log.exception("unexpected error in a connection callback, peer=%s", connection.peer)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.tick_s)
            self.now = loop.time()
            self._silent.clear()
            for connection in list(self.connections.values()):
                connection.tick(self.now)


def _cannot_listen(host: str, port: int, error: OSError, option: str) -> SetupError:
    """Return the error for an address that cannot be listened on, with the reason and what to change."""
    how = f" with {option}" if option else ""
    where = f"[{host}]" if ":" in host else host or "*"
    return SetupError(
        f"cannot listen for remoting on {where}:{port}: {why_not_listening(error)}{how}", host=host, port=port
    )


REFUSALS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

RETRY_S: Final = 0.05

_AT_A_TIME: Final = 64
"""Accepted in one turn of the loop."""


class Acceptor:
    """Listens on every address of a host. Lives on one event loop.

    Attributes:
        sockets: The listening ones.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], on_refused: Callable[[OSError], None]) -> None:
        """Nothing is listened on before `start`.

        Args:
            protocol: Makes the protocol of a connection.
            on_refused: The system has refused an accept. May close connections.
        """
        self.sockets: list[socket.socket] = []
        self._protocol = protocol
        self._on_refused = on_refused
        self._tasks: set[asyncio.Task[object]] = set()

    async def start(self, host: str, port: int, *, backlog: int, reuse_port: bool) -> None:
        """Bind and listen, as `asyncio.loop.create_server` does.

        Raises:
            OSError: An address cannot be listened on. Then none is.
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
        """Listen no more."""
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
                return  # nobody waits, or who did is gone
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, accepted))
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the connection was gone before it was made

    def _try_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

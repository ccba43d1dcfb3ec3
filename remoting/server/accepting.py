# SPDX-License-Identifier: Apache-2.0
"""The listening sockets: accepts connections, and says so when the system refuses one.

asyncio logs a refused accept for each try, uvloop not at all: libuv closes whoever waits, silently. Here it is counted,
room is made, and the next try comes a moment later; meanwhile the others wait in the backlog.

Source: accept(2), EMFILE to ENOMEM; libuv 1.x src/unix/stream.c, uv__emfile_trick.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

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

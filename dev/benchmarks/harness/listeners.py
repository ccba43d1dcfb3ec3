# SPDX-License-Identifier: Apache-2.0
"""Listeners to `GET /v1/events`: a thousand connections on one thread, and when each epoch came to each of them."""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Final, Self

_REQUEST: Final = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
_EVENT: Final = re.compile(rb"event: epoch\nid: (\d+)(?:-[0-9a-f]+)?\n")
_KEPT_BYTES: Final = 64
"""Number of bytes kept of what was read, which the next piece may complete; no event's head is longer."""


class Listeners:
    """Subscribers from the beginning to the end of a ``with``.

    Attributes:
        arrivals: epoch -> when it came, in order (`time.monotonic`), one for each listener so far.
    """

    def __init__(self, port: int, count: int) -> None:
        """Prepare ``count`` subscribers of the gateway with this HTTP port."""
        self.arrivals: dict[int, list[float]] = defaultdict(list)
        self._port, self._count = port, count
        self._selector = selectors.DefaultSelector()
        self._tails: dict[socket.socket, bytes] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="listeners")

    def __enter__(self) -> Self:
        """Returns when each was sent the head of its answer."""
        try:
            for _ in range(self._count):
                one = socket.create_connection(("127.0.0.1", self._port), timeout=60)
                one.sendall(_REQUEST)
                self._tails[one] = b""
            for one in self._tails:
                head = b""
                while b"\n\n" not in head:  # the first piece of the stream, behind the HTTP head
                    head += _some(one)
                if not head.startswith(b"HTTP/1.1 200 "):
                    raise RuntimeError(f"a listener was refused: {head[:200]!r}")
                one.setblocking(False)
                self._selector.register(one, selectors.EVENT_READ)
        except BaseException:
            self._close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._stopping.set()
        self._thread.join()
        self._close()

    @property
    def still_there(self) -> int:
        """Number of connections that the gateway has not ended."""
        return len(self._tails)

    def _work(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.1):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                now = time.monotonic()
                try:
                    text = self._tails[one] + _some(one)
                except OSError:
                    self._selector.unregister(one)
                    del self._tails[one]
                    one.close()
                    continue
                end = 0
                for found in _EVENT.finditer(text):
                    self.arrivals[int(found[1])].append(now)
                    end = found.end()
                self._tails[one] = text[max(end, len(text) - _KEPT_BYTES) :]

    def _close(self) -> None:
        for one in self._tails:
            one.close()
        self._selector.close()


def _some(one: socket.socket) -> bytes:
    data = one.recv(1 << 16)
    if not data:
        raise ConnectionError("the gateway has ended a listener")
    return data

# SPDX-License-Identifier: Apache-2.0
"""A broker that only listens: it takes what a NameServer sends it, such as NOTIFY_MIN_BROKER_ID_CHANGE."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

from dev.model.client import decode_frame
from dev.model.wire import Request


class FakeBroker:
    """A listening socket on 127.0.0.1, and every request that arrives there."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._received: list[Request] = []
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeBroker:
        """Return this broker."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self.close()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for connection in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(timeout=5)

    def received(self) -> list[Request]:
        """Requests that have arrived so far."""
        with self._lock:
            return list(self._received)

    def forget(self) -> None:
        """Drop what has arrived so far."""
        with self._lock:
            self._received.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                with self._lock:
                    self._received.append(decode_frame(frame).request())

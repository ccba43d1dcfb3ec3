# SPDX-License-Identifier: Apache-2.0
"""Servers that misbehave in one way, to see whether the load generator notices."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

Answer = Callable[[int, int], bytes]
"""(opaque of the request, how many requests came before) -> bytes to send."""


def frame(opaque: int, *, code: int = 0, body: bytes = b"body") -> bytes:
    header = json.dumps({"code": code, "flag": 1, "language": "JAVA", "opaque": opaque}, separators=(",", ":")).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """A server with a thread a connection; gives its port. An empty answer closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    count = iter(range(1_000_000_000))

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while len(head := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">i", head)[0])
                size = struct.unpack(">I", request[:4])[0] & 0xFFFFFF
                reply = answer(json.loads(request[4 : 4 + size])["opaque"], next(count))
                if not reply:
                    return
                connection.sendall(reply)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


class StallOnce:
    """Answers at once, but the fiftieth request only after a while."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s

    def __call__(self, opaque: int, number: int) -> bytes:
        if number == 50:
            time.sleep(self._stall_s)
        return frame(opaque)

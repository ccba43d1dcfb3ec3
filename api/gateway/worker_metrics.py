# SPDX-License-Identifier: Apache-2.0
"""One `/metrics` for all worker processes of a gateway: each sample of each worker, with a label ``worker``.

Workers share one port, and the kernel chooses the worker that a scrape meets. This worker asks the others, each over a
Unix socket in a folder of their supervisor. Nothing is added up here, because a sum is right for counters, not for an
epoch or an age. PromQL has both (``sum without (worker)``, ``max without (worker)``). A worker that does not answer in
time is left out, and ``rocketmq_nameserver_up`` has the workers that answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_ANSWER_S: Final = 2.0
"""A scrape waits no longer for another worker; Prometheus itself gives up after ten seconds."""


class WorkerMetrics:
    """Metrics of this worker for the others, and theirs for the scraper of this one. Lives on one event loop.

    Args:
        socket: Socket of this worker for the others. Their sockets are beside it, each named by its worker's number.
            Other files there are ignored.
        own: This worker's metrics, in the exposition format.
    """

    def __init__(self, socket: Path, own: Callable[[], bytes]) -> None:
        """Prepare the exchange; no worker is answered before `start`."""
        self._socket, self._own = socket, own
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer. Raises OSError if the socket cannot be made."""
        self._socket.unlink(missing_ok=True)  # a crashed predecessor's
        self._server = await asyncio.start_unix_server(self._answer, self._socket)

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def text(self) -> bytes:
        """Return the metrics of all workers that answer now."""
        others: list[Path] = []
        with suppress(OSError):  # somebody has tidied up: this worker alone is better than nothing
            others = sorted(path for path in self._socket.parent.iterdir() if path.is_socket() and path != self._socket)
        found = await asyncio.gather(*map(_asked, others))
        by_worker = {self._socket.name: self._own()}
        by_worker |= {path.name: text for path, text in zip(others, found, strict=True) if text is not None}
        return merged(by_worker)

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(self._own())
            await writer.drain()
        writer.close()


async def _asked(socket: Path) -> bytes | None:
    """Return the metrics of one worker; None if it does not answer in time."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def merged(by_worker: Mapping[str, bytes]) -> bytes:
    """Expositions of several processes as one: every family once, as the format wants it, with all their samples.

    Args:
        by_worker: {worker: text format 0.0.4}. Its metrics have no label ``worker``.
    """
    families: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    for worker, text in sorted(by_worker.items()):
        label = b'worker="' + worker.encode() + b'"'
        name = b""
        for line in text.splitlines():
            if line.startswith(b"# "):
                name = line.split(b" ", 3)[2]
                comments, _ = families.setdefault(name, ([], []))
                if line not in comments:
                    comments.append(line)
            elif line:
                families[name][1].append(_labelled(line, label))
    lines = [line for comments, samples in families.values() for line in (*comments, *samples)]
    return b"\n".join(lines) + b"\n"


def _labelled(sample: bytes, label: bytes) -> bytes:
    name, brace, rest = sample.partition(b"{")
    if brace and b" " not in name:
        return name + b"{" + label + b"," + rest
    name, _, value = sample.partition(b" ")
    return name + b"{" + label + b"} " + value

# SPDX-License-Identifier: Apache-2.0
"""One `/metrics` for all worker processes of a gateway: each sample of each worker, with a label ``worker``.

Workers share one port, and the kernel chooses the worker that gets a scrape. That worker asks the others, each over a
Unix socket in a folder of their supervisor. Nothing is added up here, because a sum is right for counters, but not for
an epoch or an age. PromQL has both (``sum without (worker)``, ``max without (worker)``). A worker that does not answer
in time is left out, and ``rocketmq_nameserver_up`` lists the workers that answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_ANSWER_S: Final = 2.0
"""Maximum wait of a scrape for another worker, in seconds. Prometheus itself gives up after ten seconds."""


class WorkerMetrics:
    """Exchange of metrics between this worker and the others. Used on one event loop.

    Args:
        socket: Socket of this worker for the others. Their sockets are in the same folder, named by worker number.
            Other files there are ignored.
        own: Returns this worker's metrics, in the exposition format.
    """

    def __init__(self, socket: Path, own: Callable[[], bytes]) -> None:
        """Prepare the exchange, and answer no worker before `start`."""
        self._socket, self._own = socket, own
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start to answer. Raises OSError if the socket cannot be made."""
        self._socket.unlink(missing_ok=True)  # of a crashed predecessor
        self._server = await asyncio.start_unix_server(self._answer, self._socket)

    async def stop(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def text(self) -> bytes:
        """Return the metrics of all workers that answer now."""
        others: list[Path] = []
        with suppress(OSError):  # if the folder was deleted, this worker's metrics alone are better than nothing
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
    """Return the metrics of one worker. None if it does not answer in time."""
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
    """Merge the expositions of several processes: every family once, as the format requires, with all their samples.

    Args:
        by_worker: Text in format 0.0.4 by worker. Its metrics have no label ``worker``.
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

# SPDX-License-Identifier: Apache-2.0
"""A server that is far away: every byte it answers comes some milliseconds later. A process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_CHUNK_BYTES = 1 << 16


@contextmanager
def far(port: int, delay_ms: float) -> Iterator[int]:
    """A port on loopback that leads to another one, a round trip away.

    Args:
        port: Port of the server.
        delay_ms: Duration of a round trip, in milliseconds.
    """
    command = [sys.executable, "-m", "dev.benchmarks.harness.far", str(port), str(delay_ms)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()  # its end


async def _serve(port: int, delay_s: float) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        """Chunks in order, each so much later; many may be on their way."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def arrive() -> None:
            while True:
                at_s, data = await on_the_way.get()
                await asyncio.sleep(max(0.0, at_s - clock()))
                if not data:
                    writer.close()
                    return
                writer.write(data)

        arriving = asyncio.create_task(arrive())
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                on_the_way.put_nowait((clock() + delay_s, data))
        on_the_way.put_nowait((clock() + delay_s, b""))
        await arriving

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, back, 0.0), pass_on(there, writer, delay_s))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))

# SPDX-License-Identifier: Apache-2.0
"""Large frames are read a piece at a time, a few of them in each turn of the event loop."""

from __future__ import annotations

import asyncio

from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.server.channel import Connection
from remoting.server.memory import LARGE_BYTES
from remoting.server.server import RemotingServer


class Idle:
    """A handler that is never asked."""

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None: ...


class Socket:
    """What a connection sees of its transport."""

    def __init__(self) -> None:
        self.reading, self.closing = True, False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None:
        assert not self.closing
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.closing
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True


def connected(server: RemotingServer) -> tuple[Connection, Socket]:
    connection, transport = Connection(server), Socket()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


FRAME = encode_frame(RemotingCommand(103, None, bytes(4 * LARGE_BYTES)))
PIECE = FRAME[: LARGE_BYTES + 1]


def test_those_in_a_large_frame_take_turns() -> None:
    async def main() -> None:
        server = RemotingServer(Idle())  # type: ignore[arg-type]
        peers = [connected(server) for _ in range(20)]
        for connection, _ in peers:
            connection.data_received(PIECE)
        seen = []
        while not all(transport.reading for _, transport in peers):
            seen.append(sum(transport.reading for _, transport in peers))
            await asyncio.sleep(0)
        assert seen == [0, 8, 16]

    asyncio.run(main())


def test_a_small_frame_waits_for_nobody() -> None:
    async def main() -> None:
        connection, transport = connected(RemotingServer(Idle()))  # type: ignore[arg-type]
        connection.data_received(FRAME[: LARGE_BYTES - 1])
        assert transport.reading
        connection.data_received(FRAME[LARGE_BYTES - 1 : LARGE_BYTES + 1])
        assert not transport.reading

    asyncio.run(main())


def test_a_turn_of_a_closed_or_paused_connection_is_skipped() -> None:
    async def main() -> None:
        server = RemotingServer(Idle())  # type: ignore[arg-type]
        (gone, gone_transport), (closing, closing_transport), (stopped, stopped_transport) = (
            connected(server) for _ in range(3)
        )
        for connection in (gone, closing, stopped):
            connection.data_received(PIECE)
        gone.connection_lost(None)
        closing.close("test")
        stopped.stop_reading()
        await asyncio.sleep(0)
        assert not (gone_transport.reading or closing_transport.reading or stopped_transport.reading)

    asyncio.run(main())


class Reader:
    """A peer that notes when it is read."""

    def __init__(self, order: list[Reader], missing_bytes: int = 1) -> None:
        self.order, self.missing_bytes = order, missing_bytes

    def read_on(self) -> None:
        self.order.append(self)

    def read_later(self) -> None: ...


def test_connections_read_in_the_order_in_which_they_wait() -> None:
    async def main() -> None:
        queue, order = RemotingServer(Idle()).memory.fair_queue, list[Reader]()  # type: ignore[arg-type]
        readers = [Reader(order) for _ in range(30)]
        for reader in readers:
            queue.wait(reader)
        while len(order) < 30:
            await asyncio.sleep(0)
        assert order == readers

    asyncio.run(main())

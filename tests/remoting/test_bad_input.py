# SPDX-License-Identifier: Apache-2.0
"""Bad input over a real socket, one case after the other of the list of bad inputs for the remoting API.

Where the opaque could be read the peer gets an error, else the connection is closed; either way at once, and the next
peer is served.
"""

from __future__ import annotations

import asyncio
import json
import struct
import tracemalloc
import zlib

import pytest

from dev.support.loops import eventually
from remoting.codec.commands import RequestContext, to_event
from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.codec.reply import response
from remoting.server.channel import Connection
from remoting.server.settings import RemotingSettings
from schemas.events import Actor, AnyEvent
from tests.remoting.shell import ECHO, Client, Handler, connected, run, serving
from tests.remoting.test_frame import frame
from tests.remoting.test_registration import DATA_VERSION, LINE, SERVERS, compressed, count, lines

BROKER = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "c", "brokerId": "0", "compressed": "true"}


class Registry(Handler):
    """Turns registrations and KV puts into events, as the gateway does."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[AnyEvent] = []

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        if command.code not in {100, 103}:
            return await super().handle(command, connection)
        event = to_event(
            command, RequestContext(Actor("g", "remoting", connection.peer), inflated_limit_bytes=1_000_000)
        )
        if event is not None:
            self.events.append(event)
        return response(ext_fields={})


async def serves(client: Client) -> bool:
    """Whether the connection is still good."""
    return (await client.ask(RemotingCommand(ECHO, opaque=77))).opaque == 77


CLOSED_AT_ONCE = {
    "1 length 0": b"\0\0\0\0",
    "2 negative length": b"\xff\xff\xff\xfe" + b"\0" * 20,
    "3 length 2^31-1": b"\x7f\xff\xff\xff",
    "4 one byte over the limit": struct.pack(">i", 64 * 1024 * 1024 - 4 + 1),
    "5 header longer than the frame": struct.pack(">iI", 100, 97),
    "5 header of length 0": struct.pack(">iI", 100, 0),
    "6 unknown serialize type": struct.pack(">iI", 100, 2 << 24 | 90),
    "7 header that is not UTF-8": frame(b'{"code":105,"extFields":{"topic":"\xff"}}'),
    "8 JSON 10,000 deep": frame(b'{"code":105,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    "8 JSON 10,000 deep in extFields": frame(b'{"code":105,"extFields":{"x":' + b'{"y":' * 10_000),
    "21 TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "21 SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("data", CLOSED_AT_ONCE.values(), ids=list(CLOSED_AT_ONCE))
def test_the_connection_is_closed_at_once(data: bytes) -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server:
            async with connected(server) as client:
                client.writer.write(data)
                assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert handler.reasons[0].startswith("protocol error")
            async with connected(server) as client:
                assert await serves(client)

    run(main)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_21_http_is_told_where_it_belongs(method: str) -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server, connected(server) as client:
            client.writer.write(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head, _, body = (await client.rest()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert f"Content-Length: {len(body)}".encode() in head
            assert body == b"this port has no HTTP. Use the port that --http names (default: 8080).\n"
            await eventually(lambda: bool(handler.closed))
            assert "an HTTP request" in handler.reasons[0]

    run(main)


def test_21_tls_is_named() -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server, connected(server) as client:
            client.writer.write(CLOSED_AT_ONCE["21 TLS"])
            assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert "a TLS ClientHello" in handler.reasons[0]

    run(main)


KV = {"namespace": "n", "key": "k"}

REFUSED = {
    "9 missing code": (frame(b'{"opaque":5}'), 3, " request type 0 not supported"),
    "10 missing topic": (frame(b'{"code":105,"opaque":5}'), 17, "no None"),
    "11 unknown code": (frame(b'{"code":31999,"opaque":5}'), 3, " request type 31999 not supported"),
    "15 wrong bodyCrc32": (RemotingCommand(103, {**BROKER, "bodyCrc32": "1"}, b"{}", opaque=5), 1, "crc32 not match"),
    "16 raw deflate": (
        RemotingCommand(103, BROKER, compressed(DATA_VERSION, lines(LINE), SERVERS, count(0))[2:-4], opaque=5),
        1,
        "Failed to decode RegisterBrokerBody",
    ),
    "17 zlib bomb": (
        RemotingCommand(103, BROKER, zlib.compress(bytes(50_000_000), 9), opaque=5),
        1,
        "inflates to more",
    ),
    "18 topic count -1": (
        RemotingCommand(103, BROKER, compressed(DATA_VERSION, count(-1), SERVERS), opaque=5),
        1,
        "a count of -1",
    ),
    "18 topic count 2^31-1": (
        RemotingCommand(103, BROKER, compressed(DATA_VERSION, count((1 << 31) - 1), SERVERS), opaque=5),
        1,
        "a count of 2147483647",
    ),
    "19 entry longer than the body": (
        RemotingCommand(103, BROKER, compressed(DATA_VERSION, count(1), count(1 << 30), LINE), opaque=5),
        1,
        "1073741824 bytes announced",
    ),
    "20 negative version": (RemotingCommand(103, BROKER, b"", opaque=5, version=-1), 1, "version -1"),
    "22 null KV key": (RemotingCommand(100, {"namespace": "n"}, opaque=5), 1, "namespace or key is null"),
}


@pytest.mark.parametrize(("request_", "code", "remark"), REFUSED.values(), ids=list(REFUSED))
def test_the_peer_gets_an_error_and_the_connection_goes_on(
    request_: bytes | RemotingCommand, code: int, remark: str
) -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server, connected(server) as client:
            client.writer.write(request_ if isinstance(request_, bytes) else encode_frame(request_))
            answer = await client.receive()
            assert (answer.code, answer.opaque) == (code, 5)
            assert remark in (answer.remark or "")
            assert handler.events == []
            assert await serves(client)

    run(main)


def test_12_one_byte_a_second_is_closed_at_the_deadline_and_disturbs_nobody() -> None:
    async def main() -> None:
        handler = Registry()
        settings = RemotingSettings(frame_deadline_s=0.1)
        async with serving(handler, settings) as server, connected(server) as slow, connected(server) as other:
            for byte in encode_frame(RemotingCommand(ECHO)):
                slow.writer.write(bytes([byte]))
                assert await serves(other)
                if handler.closed:
                    break
                await asyncio.sleep(0.02)
            assert handler.reasons[0].startswith("frame not complete")
            assert await serves(other)

    run(main)


def test_13_half_a_frame_and_then_the_end() -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server:
            async with connected(server) as client:
                client.writer.write(encode_frame(RemotingCommand(103, BROKER, b"{}"))[:-1])
                client.writer.write_eof()
                assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert handler.events == []

    run(main)


def test_14_two_hundred_pipelined_requests() -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server, connected(server) as client:
            client.send(*(RemotingCommand(100, {**KV, "value": str(number)}, opaque=number) for number in range(200)))
            assert {(await client.receive()).opaque for _ in range(200)} == set(range(200))
            assert len(handler.events) == 200

    run(main)


def test_17_bombs_of_many_peers_take_no_memory() -> None:
    bomb = encode_frame(RemotingCommand(103, BROKER, zlib.compress(bytes(100_000_000), 9)))

    async def main() -> None:
        async with serving(Registry()) as server:
            for _ in range(5):
                async with connected(server) as client:
                    client.writer.write(bomb * 3)
                    for _ in range(3):
                        assert (await client.receive()).code == 1
                    assert await serves(client)

    tracemalloc.start()
    try:
        run(main)
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def test_20_a_version_from_the_future_is_taken_as_the_newest() -> None:
    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server, connected(server) as client:
            body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {"t": {"topicName": "t"}}}}).encode()
            ext = {**BROKER, "compressed": "false"}
            assert (await client.ask(RemotingCommand(103, ext, body, version=99_999))).code == 0
            assert len(handler.events) == 1

    run(main)


def test_a_thousand_announced_frames_take_no_memory() -> None:
    announced = struct.pack(">iI", 60_000_000, 200) + b"{"

    async def main() -> None:
        handler = Registry()
        async with serving(handler) as server:
            writers = []
            for _ in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(announced)
                writers.append(writer)
            await eventually(lambda: server.memory.unfinished_bytes == 200 * len(announced))
            for writer in writers:
                writer.close()
            await eventually(lambda: not server.connections)
            assert server.memory.unfinished_bytes == 0

    tracemalloc.start()
    try:
        run(main)
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()

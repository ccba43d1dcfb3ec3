# SPDX-License-Identifier: Apache-2.0
"""The asyncio shell over real sockets: answers, order, bounds, and closing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
import tracemalloc
from typing import cast

import pytest

from dev.support.alone import alone
from dev.support.loops import eventually
from remoting.codec.frame import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, encode_frame
from remoting.codec.reply import EncodedReply, response
from remoting.server.channel import Connection, size_of
from remoting.server.server import RemotingServer
from remoting.server.settings import RemotingSettings
from schemas.codes import SerializeType
from schemas.errors import SetupError
from tests.remoting.shell import (
    BUSY,
    ECHO,
    FAIL,
    LOOPS,
    REFUSE,
    SILENT,
    WAIT,
    Handler,
    connected,
    run,
    serving,
)

both_loops = pytest.mark.parametrize("loop", LOOPS)
ENDLESS_WRITELINES = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
"""CVE-2024-12254: asyncio's `writelines` does not pause the writer. Gateways use uvloop, which has no such defect."""
MIB = 1024 * 1024
IDLE_S = 1.5
"""A machine that stands still for a second makes no new connection idle."""


def route(topic: str, opaque: int = 0, **more: object) -> RemotingCommand:
    return RemotingCommand(105, {"topic": topic}, opaque=opaque, **more)  # type: ignore[arg-type]


# --- answers ---


@both_loops
def test_two_hundred_pipelined_route_requests_are_answered_in_order(loop: str) -> None:
    async def main() -> None:
        handler = Handler({"a": b"body a", "b": b"body b"})
        async with serving(handler) as server, connected(server) as client:
            client.send(*(route("ab"[number % 2], number) for number in range(200)))
            for number in range(200):
                answer = await client.receive()
                assert (answer.opaque, answer.code, answer.flag) == (number, 0, FLAG_RESPONSE)
                assert answer.body == (b"body a", b"body b")[number % 2]
            assert handler.handled == []

    run(main, loop)


def test_all_answers_to_one_piece_of_data_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []

    async def main() -> None:
        handler = Handler({"a": b"body"})
        async with serving(handler) as server, connected(server) as client:
            await client.ask(route("a"))
            (connection,) = handler.connected
            transport = connection._transport
            assert transport is not None

            class Recording:
                def __getattr__(self, name: str) -> object:
                    return getattr(transport, name)

                def write(self, data: bytes) -> None:
                    writes.append(data)
                    cast("asyncio.Transport", transport).write(data)

            monkeypatch.setattr(connection, "_transport", Recording())
            client.send(*(route("a", number) for number in range(10)))
            for _ in range(10):
                await client.receive()

    run(main, "asyncio")
    assert len(writes) == 1


@both_loops
def test_requests_that_cannot_be_answered_fast_go_to_the_handler(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:
            answer = await client.ask(route("x", 5))
            assert (answer.code, answer.remark, answer.opaque) == (17, "no x", 5)
            answer = await client.ask(RemotingCommand(ECHO, None, b"body", opaque=6))
            assert (answer.code, answer.body, answer.opaque) == (0, b"body", 6)
            assert [command.code for command in handler.handled] == [105, ECHO]

    run(main, loop)


@pytest.mark.parametrize("topic", ["a", "x", "explosive"])
def test_a_request_that_is_repeated_is_handled_once_each_time(topic: str) -> None:
    """Answered, handed on or failed, as at first."""

    async def main() -> None:
        handler = Handler({"a": b"body a"})
        asked: list[str | None] = []
        answer_asked = handler.answer

        def counted(topic: str | None) -> EncodedReply:
            asked.append(topic)
            return answer_asked(topic)

        handler.answer = counted  # type: ignore[method-assign]
        async with serving(handler) as server, connected(server) as client:
            answers = [await client.ask(route(topic, opaque)) for opaque in range(1, 9)]
            assert len({(answer.code, answer.remark, answer.body) for answer in answers}) == 1
            assert [answer.opaque for answer in answers] == list(range(1, 9))
            assert asked == [topic] * (0 if topic == "x" else 8)
            assert len(handler.handled) == (8 if topic == "x" else 0)
            assert server.failed == (8 if topic == "explosive" else 0)

    run(main)


def test_what_the_handler_raises_becomes_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(Handler()) as server, connected(server) as client:
            cases: list[tuple[RemotingCommand, int, str, dict[str, str] | None]] = [
                (RemotingCommand(FAIL), 1, "ValueError: boom", None),
                (RemotingCommand(REFUSE), 1, "crc32 not match", {}),
                (RemotingCommand(BUSY), 2, "log is away", None),
                (route("explosive"), 1, "ValueError: boom", None),
                (RemotingCommand(31999), 3, " request type 31999 not supported", None),
            ]
            for command, code, remark, ext_fields in cases:
                answer = await client.ask(command)
                assert (answer.code, answer.remark, answer.ext_fields) == (code, remark, ext_fields)
            assert server.failed == 2

    with caplog.at_level(logging.ERROR):
        run(main)
    assert len(caplog.records) == 2


def test_an_answer_that_cannot_be_encoded_becomes_an_error() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:

            async def handle(command: RemotingCommand, connection: Connection) -> RemotingCommand:
                return RemotingCommand(0, remark="\ud800")

            handler.handle = handle  # type: ignore[method-assign]
            answer = await client.ask(RemotingCommand(ECHO))
            assert answer.code == 1
            assert "surrogates not allowed" in (answer.remark or "")

    run(main)


@both_loops
def test_oneway_requests_are_carried_out_and_never_answered(loop: str) -> None:
    async def main() -> None:
        handler = Handler({"a": b"body"})
        async with serving(handler) as server, connected(server) as client:
            for code in (ECHO, FAIL, 31999, SILENT):
                client.send(RemotingCommand(code, flag=FLAG_ONEWAY))
            client.send(route("a", flag=FLAG_ONEWAY), RemotingCommand(SILENT))
            assert (await client.ask(RemotingCommand(ECHO, opaque=9))).opaque == 9
            assert len(handler.handled) == 7

    run(main, loop)


def test_responses_are_dropped_and_the_connection_goes_on() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:
            client.send(RemotingCommand(0, flag=FLAG_RESPONSE), RemotingCommand(105, flag=FLAG_RESPONSE))
            assert (await client.ask(RemotingCommand(ECHO, opaque=3))).opaque == 3
            assert len(handler.handled) == 1

    run(main)


@pytest.mark.parametrize("kind", SerializeType)
def test_answers_have_json_headers(kind: SerializeType) -> None:
    async def main() -> None:
        async with serving(Handler({"a": b"body"})) as server, connected(server) as client:
            for command in (route("a", -7), route("a", 8), RemotingCommand(ECHO, opaque=9)):
                client.writer.write(encode_frame(command, kind))
                answer = await client.receive()
                assert (answer.opaque, answer.serialize_type) == (command.opaque, SerializeType.JSON)

    run(main)


def test_the_server_can_ask_too() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:
            await eventually(lambda: bool(handler.connected))
            (connection,) = handler.connected
            notice = RemotingCommand(905, {"minBrokerId": "1"}, flag=FLAG_ONEWAY)
            assert connection.send(notice)
            assert await client.receive() == notice
            connection.close("because")
            assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert connection.closed
            assert not connection.send(notice)
            assert handler.reasons == ["because"]

    run(main)


# --- connections ---


@both_loops
def test_callbacks_see_every_connection_come_and_go(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server:
            for _ in range(3):
                async with connected(server) as client:
                    await client.ask(RemotingCommand(ECHO))
                    host, port = client.writer.get_extra_info("sockname")
                    assert handler.connected[-1].peer == f"{host}:{port}"
            await eventually(lambda: len(handler.closed) == 3)
            assert len({connection.id for connection in handler.connected}) == 3
            assert handler.reasons == ["closed by peer"] * 3
            assert server.connections == {}
        assert RemotingServer(handler)._run_id != server._run_id

    run(main, loop)


def test_a_callback_that_raises_takes_nothing_down(caplog: pytest.LogCaptureFixture) -> None:
    class Fragile(Handler):
        def on_connect(self, connection: Connection) -> None:
            raise RuntimeError("connect")

        def on_close(self, connection: Connection) -> None:
            raise RuntimeError("close")

    async def main() -> None:
        async with serving(Fragile()) as server:
            async with connected(server) as client:
                assert (await client.ask(RemotingCommand(ECHO))).code == 0
            await eventually(lambda: server.failed == 2)

    run(main)
    assert len(caplog.records) == 2


@both_loops
def test_over_the_limit_the_idlest_connection_gives_way(loop: str) -> None:
    """First who never said anything, then who said nothing for longest; never one with a request under way."""

    async def main() -> None:
        handler = Handler()
        async with (
            serving(handler, RemotingSettings(max_connections=3)) as server,
            connected(server) as busy,
            connected(server) as spoken,
            connected(server) as silent,
        ):
            busy.send(RemotingCommand(WAIT, opaque=1))
            await spoken.ask(RemotingCommand(ECHO))
            await eventually(lambda: len(server.connections) == 3 and handler.running == 1)
            async with connected(server) as third:
                await third.ask(RemotingCommand(ECHO))
                assert await silent.rest() == b""
                async with connected(server) as fourth:
                    await fourth.ask(RemotingCommand(ECHO))
                    assert await spoken.rest() == b""
                    await third.ask(RemotingCommand(ECHO))
                    assert len(server.connections) == 3
            handler.gate.set()
            assert (await busy.receive()).opaque == 1
            assert server.refusals.counts == {"evicted-idle": 2}

    run(main, loop)


@both_loops
def test_connections_over_the_limit_are_turned_away_while_nobody_is_idle(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(max_connections=2)) as server:
            async with connected(server) as first, connected(server) as second:
                for client in (first, second):
                    client.send(RemotingCommand(WAIT))
                await eventually(lambda: handler.running == 2)
                async with connected(server) as third:
                    assert await third.rest() == b""
                assert (server.accepted, server.refusals.counts["too-many-connections"]) == (2, 1)
                handler.gate.set()
                for client in (first, second):
                    await client.receive()
            await eventually(lambda: not server.connections)
            async with connected(server) as client:
                await client.ask(RemotingCommand(ECHO))
            assert len(handler.connected) == 3

    run(main, loop)


def test_a_broker_s_connection_gives_way_to_nobody_of_its_own_address() -> None:
    async def main() -> None:
        handler = Handler()
        async with (
            serving(handler, RemotingSettings(max_connections=2)) as server,
            connected(server) as broker,
            connected(server) as other,
        ):
            await broker.ask(RemotingCommand(ECHO))
            handler.connected[0].has_registered = True
            await other.ask(RemotingCommand(ECHO))
            async with connected(server) as third:
                await third.ask(RemotingCommand(ECHO))
                assert await other.rest() == b""
            await broker.ask(RemotingCommand(ECHO))

    run(main)


@both_loops
def test_without_a_file_descriptor_an_idle_connection_is_evicted(loop: str) -> None:
    """The newcomer is let in, and it is said; nothing hangs in the backlog. The limit is a whole process's."""
    failed, evicted, rest_of_the_first = alone(without_a_file_descriptor, loop)
    assert failed > 0
    assert 1 <= evicted <= 5
    assert rest_of_the_first == b""


def without_a_file_descriptor(loop: str) -> tuple[int, int, bytes]:
    """Two newcomers to a server that may open no more: refusals of accept, idle connections closed, the first's rest."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> tuple[int, int, bytes]:
        handler = Handler()
        async with serving(handler) as server, contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(connected(server)) for _ in range(5)]
            await eventually(lambda: len(server.connections) == 5)
            newcomers = [stack.enter_context(socket.socket()) for _ in range(2)]
            spare = [os.dup(0) for _ in range(64)]  # each takes the lowest number that is free
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, hard))
            for newcomer in newcomers:
                newcomer.connect(("127.0.0.1", server.port))
                newcomer.sendall(encode_frame(RemotingCommand(ECHO)))
            await eventually(lambda: len(handler.handled) == 2)
            counts = server.refusals.counts
            return counts["accept-failed"], counts["evicted-idle"], await idle[0].rest()

    return run(main, loop)


def test_a_preamble_is_skipped_and_the_peer_is_who_connected() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:
            client.writer.write(b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 9876\r\n")
            await client.ask(RemotingCommand(ECHO))
            (connection,) = handler.connected
            assert connection.peer.startswith("127.0.0.1:")

    run(main)


# --- bounds ---


@both_loops
def test_requests_are_handled_at_the_same_time_up_to_a_bound(loop: str) -> None:
    async def main() -> None:
        handler = Handler({"a": b"body"})
        async with serving(handler, RemotingSettings(max_in_flight=5)) as server, connected(server) as client:
            client.send(*(RemotingCommand(WAIT, opaque=number) for number in range(4)))
            assert (await client.ask(route("a", 99))).opaque == 99  # overtakes
            client.send(*(RemotingCommand(WAIT, opaque=number) for number in range(4, 50)), route("a", 50))
            await eventually(lambda: handler.running == 5)
            (connection,) = handler.connected
            await eventually(lambda: not connection._reading)
            handler.gate.set()
            assert sorted([(await client.receive()).opaque for _ in range(51)]) == list(range(51))
            assert handler.most_running == 5
            assert (await client.ask(RemotingCommand(ECHO, opaque=7))).opaque == 7

    run(main, loop)


@both_loops
def test_bodies_in_flight_are_bounded_but_one_always_passes(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(max_in_flight_bytes=100)) as server, connected(server) as client:
            client.send(*(RemotingCommand(WAIT, None, bytes(200), opaque=number) for number in range(3)))
            await eventually(lambda: handler.running == 1)
            handler.gate.set()
            assert [(await client.receive()).opaque for _ in range(3)] == [0, 1, 2]
            assert handler.most_running == 1

    run(main, loop)


@both_loops
def test_a_client_that_never_reads_cannot_grow_memory(loop: str) -> None:
    body = bytes(64 * 1024)
    asked = 2000

    async def main() -> None:
        handler = Handler({"a": body})
        settings = RemotingSettings(write_high_bytes=MIB)
        async with serving(handler, settings) as server, connected(server, limit=1024) as client:
            client.stop_reading()
            client.send(*(route("a", number) for number in range(asked)))
            await eventually(lambda: bool(handler.connected) and not handler.connected[0]._writing)
            (connection,) = handler.connected
            for _ in range(20):
                await asyncio.sleep(0)
                assert connection._transport is not None
                assert connection._transport.get_write_buffer_size() < 3 * MIB
            assert not connection._reading
            client.read_on()
            for number in range(asked):
                assert (await client.receive()).opaque == number
            await eventually(lambda: connection._reading)

    run(main, loop)


def test_a_client_that_never_reads_is_dropped_in_the_end() -> None:
    async def main() -> None:
        handler = Handler({"a": bytes(MIB)})
        settings = RemotingSettings(idle_timeout_s=IDLE_S, write_high_bytes=MIB)
        async with serving(handler, settings) as server, connected(server, limit=1024) as client:
            client.stop_reading()
            client.send(*(route("a", number) for number in range(50)))
            await eventually(lambda: bool(handler.closed))
            assert handler.reasons == ["peer does not read its answers"]

    run(main)


@both_loops
def test_a_silent_client_is_closed_after_the_idle_timeout(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(idle_timeout_s=IDLE_S)) as server, connected(server) as client:
            assert (await client.ask(RemotingCommand(ECHO))).code == 0
            assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert handler.reasons == [f"idle for {IDLE_S} s"]

    run(main, loop)


@both_loops
def test_a_client_that_sends_a_byte_now_and_then_is_closed_at_the_deadline(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        settings = RemotingSettings(frame_deadline_s=0.1)
        async with serving(handler, settings) as server, connected(server) as client:
            data = encode_frame(RemotingCommand(103, None, bytes(100_000)))
            sent = 0
            while not handler.closed:
                client.writer.write(data[sent : sent + 1])
                sent += 1
                await asyncio.sleep(0.005)
            assert handler.reasons[0].startswith("frame not complete after 0.1")
            assert sent < 1000
            assert handler.handled == []

    run(main, loop)


class Clock:
    """Drives one connection's clock by hand."""

    def __init__(self, settings: RemotingSettings) -> None:
        self.server = RemotingServer(Handler(), settings)
        self.server.now = 1000.0
        self.connection = Connection(self.server)
        self.closed = False
        clock = self

        class Transport(asyncio.Transport):
            def get_extra_info(self, name: str, default: object = None) -> object:
                return ("192.0.2.1", 5)

            def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

            def is_closing(self) -> bool:
                return clock.closed

            def close(self) -> None:
                clock.closed = True

            abort = close

            def write(self, data: object) -> None: ...

            def get_write_buffer_size(self) -> int:
                return 0

            def pause_reading(self) -> None: ...

            def resume_reading(self) -> None: ...

        self.connection.connection_made(Transport())

    def at(self, now: float) -> None:
        self.server.now = now
        self.connection.tick(now)


def test_a_slow_but_steady_upload_is_let_through() -> None:
    async def main() -> None:
        clock = Clock(RemotingSettings(frame_deadline_s=60, frame_min_bytes_per_s=64 * 1024))
        data = encode_frame(RemotingCommand(103, None, bytes(20 * MIB)))
        now = 1000.0
        for at in range(0, len(data), 128 * 1024):  # 128 KiB a second: 160 s
            now += 1
            clock.at(now)
            clock.connection.data_received(data[at : at + 128 * 1024])
            assert not clock.closed
        assert now > 1150
        assert clock.connection._unfinished_bytes == 0
        await eventually(lambda: clock.connection._in_flight == 0)

    run(main)


@pytest.mark.parametrize("piece", [1, 30_000])
def test_an_upload_that_is_too_slow_is_closed(piece: int) -> None:
    clock = Clock(RemotingSettings(frame_deadline_s=60, frame_min_bytes_per_s=64 * 1024))
    start = encode_frame(RemotingCommand(103, None, bytes(10 * MIB)))[:200]
    clock.connection.data_received(start)

    async def main() -> float:
        now = 1000.0
        while not clock.closed:
            now += 1
            clock.at(now)
            clock.connection.data_received(bytes(piece))
            await asyncio.sleep(0)
        return now

    assert asyncio.run(main()) < 1000 + 60 + 60 + 10
    assert "frame not complete" in (clock.connection.close_reason or "")


def test_time_in_which_the_server_did_not_read_does_not_count() -> None:
    clock = Clock(RemotingSettings(frame_deadline_s=60, idle_timeout_s=60))
    clock.connection.data_received(encode_frame(RemotingCommand(103, None, bytes(100)))[:50])
    clock.connection.stop_reading()
    clock.at(5000.0)
    assert not clock.closed
    clock.connection.go_on()
    clock.at(5050.0)
    assert not clock.closed
    clock.at(5070.0)
    assert clock.closed


def test_a_new_frame_has_a_new_deadline() -> None:
    clock = Clock(RemotingSettings(frame_deadline_s=60, idle_timeout_s=600))
    data = encode_frame(RemotingCommand(105, {"topic": "none"}, flag=FLAG_RESPONSE))
    clock.connection.data_received(data[:10])
    for now in range(1050, 1500, 50):
        clock.at(now)
        clock.connection.data_received(data[10:] + data[:10])
        assert not clock.closed


def test_a_connection_that_does_not_flush_is_dropped() -> None:
    clock = Clock(RemotingSettings())
    clock.connection.close("done")
    clock.closed = False
    clock.at(1001.0)
    assert not clock.closed
    clock.at(1020.0)
    assert clock.closed


def test_the_largest_and_oldest_unfinished_frame_is_evicted_first() -> None:
    """It is not the one who crosses the limit."""

    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(max_received_bytes=1_000_000, evict_after_s=0.0)) as server:
            whole = encode_frame(RemotingCommand(103, None, bytes(700_000)))
            async with connected(server) as hoarder, connected(server) as honest:
                hoarder.writer.write(whole[:600_000])
                await eventually(lambda: server.memory.unfinished_bytes == 600_000)
                honest.writer.write(whole[:500_000])
                assert await hoarder.rest() == b""
                await eventually(lambda: server.memory.unfinished_bytes == 500_000)
                honest.writer.write(whole[500_000:])
                assert (await honest.receive()).code == 3
                assert (
                    server.memory.unfinished_bytes == server.memory.backlog_bytes == server.memory.in_flight_bytes == 0
                )
                assert server.refusals.counts == {"evicted-unfinished": 1}

    run(main)


def test_while_memory_is_short_large_frames_become_whole_one_after_the_other() -> None:
    """Forty at once are five times what may be held, and no connection is dropped."""

    async def main() -> None:
        handler = Handler()
        most = 0
        async with serving(handler, RemotingSettings(max_received_bytes=8 * MIB)) as server:
            whole = encode_frame(RemotingCommand(103, None, bytes(MIB)))

            async def upload() -> None:
                nonlocal most
                async with connected(server) as client:
                    for at in range(0, len(whole), 50_000):
                        client.writer.write(whole[at : at + 50_000])
                        await client.writer.drain()
                        most = max(most, server.memory.received_bytes)
                    assert (await client.receive()).code == 3

            await asyncio.gather(*(upload() for _ in range(40)))
            assert not server.refusals.counts
            assert most <= 12 * MIB
            assert server.memory.received_bytes == 0

    run(main)


def test_a_starving_frame_holds_up_nobody_while_memory_is_short() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(max_received_bytes=4 * MIB)) as server:
            whole = encode_frame(RemotingCommand(103, None, bytes(MIB)))
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(12):
                    starving = await stack.enter_async_context(connected(server))
                    starving.writer.write(whole[:200_000])
                await eventually(server.memory.is_short)
                honest = await stack.enter_async_context(connected(server))
                began = asyncio.get_running_loop().time()
                for at in range(0, len(whole), 50_000):
                    honest.writer.write(whole[at : at + 50_000])
                    await asyncio.sleep(0.001)
                assert (await honest.receive()).code == 3
                assert asyncio.get_running_loop().time() - began < 10
                assert not server.refusals.counts

    run(main)


class Gated(Handler):
    """Keeps each request that has an opaque until the gate opens. Then it drops the body before the fields."""

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.handled.append(command)
        if command.opaque:
            await self.gate.wait()
            connection.let_go(command)
        return response()


@pytest.mark.parametrize(
    "in_flight",
    [
        pytest.param([RemotingCommand(ECHO, None, bytes(100_000), opaque=number) for number in (1, 2, 3)], id="small"),
        pytest.param([RemotingCommand(ECHO, {"f": "x" * 60_000}, bytes(120_000), opaque=1)], id="in-two-parts"),
    ],
)
def test_a_large_request_starts_after_the_end_of_the_requests_before_it(in_flight: list[RemotingCommand]) -> None:
    """No single release has the size of a large request."""

    async def main() -> None:
        handler, settings = Gated(), RemotingSettings(max_received_bytes=MIB)
        async with serving(handler, settings) as server, connected(server) as others, connected(server) as client:
            others.send(*in_flight)
            await eventually(lambda: len(handler.handled) == len(in_flight))
            client.send(RemotingCommand(ECHO, None, bytes(400_000)))
            await eventually(lambda: server.memory.backlog_bytes)
            handler.gate.set()
            await client.receive()
            assert server.memory.received_bytes == 0

    run(main)


def test_small_requests_delay_no_large_one() -> None:
    """There are always some of them, and their end frees too little memory."""

    async def main() -> None:
        handler, settings = Gated(), RemotingSettings(max_received_bytes=2 * MIB)
        async with serving(handler, settings) as server, connected(server) as others, connected(server) as client:
            others.send(*(RemotingCommand(ECHO, None, bytes(70_000), opaque=number) for number in (1, 2)))
            await eventually(lambda: len(handler.handled) == 2)
            client.send(RemotingCommand(ECHO, None, bytes(MIB - 1000)))
            await client.receive()

    run(main)


def test_small_requests_delay_no_large_frame_while_memory_is_short() -> None:
    async def main() -> None:
        handler, settings = Gated(), RemotingSettings(max_received_bytes=4 * MIB)
        frame = encode_frame(RemotingCommand(103, None, bytes(2 * MIB)))
        async with serving(handler, settings) as server, contextlib.AsyncExitStack() as stack:
            others, first, second, client = [await stack.enter_async_context(connected(server)) for _ in range(4)]
            others.send(*(RemotingCommand(ECHO, None, bytes(70_000), opaque=number) for number in (1, 2)))
            await eventually(lambda: len(handler.handled) == 2)
            for starving in (first, second):
                starving.writer.write(frame[: 6 * MIB // 5])
            await eventually(lambda: server.memory.unfinished_bytes == 2 * (6 * MIB // 5))
            client.writer.write(frame)
            await client.receive()

    run(main)


@both_loops
def test_a_peer_that_does_not_read_delays_no_other_answer(loop: str) -> None:
    """Answers of any size are prepared when the one before it is read."""
    if loop == "asyncio" and ENDLESS_WRITELINES:
        pytest.skip("asyncio of this Python does not pause a writer (CVE-2024-12254)")

    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server, limit=1024) as client:

            async def handle(command: RemotingCommand, connection: Connection) -> RemotingCommand:
                handler.handled.append(command)
                return response(body=bytes(8 * MIB))

            handler.handle = handle  # type: ignore[method-assign]
            client.stop_reading()
            client.send(*(RemotingCommand(ECHO, opaque=number) for number in range(30)))
            await eventually(lambda: bool(handler.connected) and not handler.connected[0]._writing)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(handler.handled) == 1
            client.read_on()
            assert sorted([(await client.receive()).opaque for _ in range(30)]) == list(range(30))

    run(main, loop)


@both_loops
def test_requests_of_a_peer_that_reads_late_are_handled_in_order(loop: str) -> None:
    """The large answer is written before the first of them is handled."""

    async def main() -> None:
        handler = Handler({"large": bytes(16 * MIB)})
        settings = RemotingSettings(write_high_bytes=1024)
        async with serving(handler, settings) as server, connected(server, limit=1024) as client:
            client.stop_reading()
            before, after = (
                [RemotingCommand(ECHO, {"f": "x"}, opaque=number) for number in numbers]
                for numbers in (range(1, 4), range(4, 7))
            )
            client.send(*before, route("large"), *after)
            await eventually(lambda: server.memory.backlog_bytes == sum(map(size_of, before + after)))
            client.read_on()
            assert sorted([(await client.receive()).opaque for _ in range(7)]) == list(range(7))
            assert [command.opaque for command in handler.handled] == list(range(1, 7))
            assert server.memory.received_bytes == 0

    run(main, loop)


def test_the_work_for_a_request_does_not_grow_with_the_number_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of each request is computed a few times, also if the requests that were started are put back."""
    computed = 0

    def counted(command: RemotingCommand) -> int:
        nonlocal computed
        computed += 1
        return size_of(command)

    async def main() -> None:
        clock = Clock(RemotingSettings())
        connection, handler = clock.connection, cast("Handler", clock.server.handler)
        requests = [RemotingCommand(ECHO, {"f": "x"}, opaque=number) for number in range(1000)]
        connection.data_received(b"".join(map(encode_frame, requests)))
        connection.pause_writing()
        await eventually(lambda: clock.server.memory.backlog_bytes == sum(map(size_of, requests)))
        connection.resume_writing()
        await eventually(lambda: not connection._in_flight)
        assert [command.opaque for command in handler.handled] == list(range(1000))
        assert clock.server.memory.received_bytes == 0
        assert computed < 4 * 1000

    monkeypatch.setattr("remoting.server.channel.size_of", counted)
    run(main)


def test_of_peers_that_do_not_read_the_largest_is_dropped() -> None:
    async def main() -> None:
        handler = Handler({str(number): bytes(number) for number in (16 * MIB, 20 * MIB)})
        settings = RemotingSettings(max_unread_bytes=24 * MIB)
        async with (
            serving(handler, settings) as server,
            connected(server, limit=1024) as large,
            connected(server, limit=1024) as small,
        ):
            for client, size in ((large, 20 * MIB), (small, 16 * MIB)):
                client.stop_reading()
                client.send(*(route(str(size), number) for number in range(3)))
                await eventually(lambda: len(server.memory._unread) == 1)
            await eventually(lambda: bool(handler.closed))
            assert server.refusals.counts == {"evicted-unread": 1}
            small.read_on()
            assert [(await small.receive()).opaque for _ in range(3)] == [0, 1, 2]

    run(main)


def test_a_refused_connection_leaves_nothing_behind() -> None:
    """The error has a traceback, that has the bytes; it must not wait for the garbage collector."""

    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server:
            start = encode_frame(RemotingCommand(106, {"x": "y" * 5_000_000}))[:100_000]
            for _ in range(2):
                async with connected(server) as client:
                    client.writer.write(start)
                    await client.rest()
            handler.connected.clear()
            handler.closed.clear()
            gc.collect()
            gc.disable()
            tracemalloc.start()
            try:
                for _ in range(20):
                    async with connected(server) as client:
                        client.writer.write(start)
                        assert await client.rest() == b""
                        del client
                    handler.connected.clear()
                    handler.closed.clear()
                held = [
                    trace.size
                    for trace in tracemalloc.take_snapshot().traces
                    if trace.size > 30_000 and "channel.py" not in str(trace.traceback)
                ]
            finally:
                tracemalloc.stop()
                gc.enable()
            assert sum(held) < 500_000

    run(main)


# --- the end ---


@both_loops
def test_a_bad_frame_closes_after_the_answers_to_what_came_before(loop: str) -> None:
    async def main() -> None:
        handler = Handler({"a": b"body"})
        async with serving(handler) as server, connected(server) as client:
            client.writer.write(encode_frame(route("a", 1)) + b"\xff\xff\xff\xff" + encode_frame(route("a", 2)))
            assert (await client.receive()).opaque == 1
            assert await client.rest() == b""
            await eventually(lambda: bool(handler.closed))
            assert handler.reasons[0].startswith("protocol error: frame length -1")
            assert server.refusals.counts["protocol-error"] == 1

    run(main, loop)


@both_loops
def test_half_a_frame_and_then_the_end_is_nobody_s_request(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server:
            async with connected(server) as client:
                client.writer.write(encode_frame(RemotingCommand(ECHO, None, bytes(100)))[:-1])
                await eventually(lambda: server.memory.unfinished_bytes > 0)
            await eventually(lambda: bool(handler.closed))
            assert handler.handled == []
            assert server.memory.unfinished_bytes == 0

    run(main, loop)


@both_loops
def test_a_graceful_close_finishes_what_was_received(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, RemotingSettings(max_in_flight=2)) as server, connected(server) as client:
            client.send(*(RemotingCommand(WAIT, opaque=number) for number in range(6)))
            await eventually(lambda: handler.running == 2)
            closing = asyncio.ensure_future(server.close(grace_s=10))
            await eventually(lambda: server.is_closing)
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection("127.0.0.1", port_of(handler))
            handler.gate.set()
            assert sorted([(await client.receive()).opaque for _ in range(6)]) == list(range(6))
            await closing
            assert await client.rest() == b""
            assert handler.reasons == ["server stops"]
            assert server.connections == {}

    def port_of(handler: Handler) -> int:
        transport = handler.connected[0]._transport
        assert transport is not None
        return int(transport.get_extra_info("sockname")[1])

    run(main, loop)


@both_loops
def test_a_close_does_not_wait_longer_than_its_grace(loop: str) -> None:
    async def main() -> None:
        handler = Handler()
        server = RemotingServer(handler)
        await server.start("127.0.0.1", 0)
        async with connected(server) as client:
            client.send(RemotingCommand(WAIT))
            await eventually(lambda: handler.running == 1)
            await server.close(grace_s=0.05)
            assert await client.rest() == b""
            await eventually(lambda: handler.running == 0)  # cancelled

    run(main, loop)


@both_loops
def test_a_port_in_use_says_what_to_change(loop: str) -> None:
    async def main() -> None:
        async with serving(Handler()) as server:
            with pytest.raises(SetupError, match=r"127\.0\.0\.1:\d+: another process .* with --remoting HOST:PORT"):
                await RemotingServer(Handler()).start("127.0.0.1", server.port, option="--remoting HOST:PORT")
        with pytest.raises(SetupError, match="this machine does not have that address"):
            await RemotingServer(Handler()).start("192.0.2.1", 0)
        with pytest.raises(SetupError, match="not listening"):
            _ = RemotingServer(Handler()).port

    run(main, loop)


@both_loops
def test_several_processes_can_share_a_port(loop: str) -> None:
    async def main() -> None:
        settings = RemotingSettings(reuse_port=True)
        first, second = Handler(), Handler()
        async with serving(first, settings) as server:
            other = RemotingServer(second, settings)
            await other.start("127.0.0.1", server.port)
            try:
                for _ in range(200):
                    async with connected(server) as client:
                        await client.ask(RemotingCommand(ECHO))
                    if first.connected and second.connected:
                        break
                assert first.connected
                assert second.connected
            finally:
                await other.close()

    run(main, loop)


def test_nagle_is_off() -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler) as server, connected(server) as client:
            await client.ask(RemotingCommand(ECHO))
            transport = handler.connected[0]._transport
            assert transport is not None
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    for loop in LOOPS:
        run(main, loop)

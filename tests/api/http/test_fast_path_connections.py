# SPDX-License-Identifier: Apache-2.0
"""The fast path when something moves: the view, the date, the connection; who may read, and what is counted."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from api.settings.gateway import Reads
from dev.support.http_api import HttpApi, broker
from schemas.events import Actor, Clock
from tests.api.http.wire import PATH, exchange, get, tag, wires

# --- the view moves ---


def test_a_changed_route_is_never_answered_from_before(make_api: Any) -> None:
    api = make_api(clock_interval_s=3600.0)
    fast, plain = wires(api)
    seen: set[bytes] = set()
    for step in range(6):
        topics = ("payments",) if step == 4 else ("orders", "payments")
        brokers = broker(topics=topics, counter=step + 2)
        for config in brokers["topicConfigSerializeWrapper"]["topicConfigTable"].values():
            config["readQueueNums"] = step + 1
        assert api.register(brokers).json()["visible"]
        if step == 4:
            assert api.delete("/v1/topics/orders").json()["visible"]
        api.settled()
        conditional = get(PATH, b"If-None-Match: " + tag(api)) if step != 4 else get(PATH, b"If-None-Match: *")
        said = [get(), conditional, get(), conditional, get()]
        found = exchange(api, fast, said)
        assert found == exchange(api, plain, said)
        assert found[0].startswith(b"HTTP/1.1 404" if step == 4 else b"HTTP/1.1 200")
        assert found[0] not in seen
        seen.add(found[0])
    assert fast.fast.hits > 10


def test_the_position_moves_without_the_route(make_api: Any) -> None:
    api = make_api(clock_interval_s=3600.0)
    assert api.register(broker()).json()["visible"]
    api.settled()
    fast, plain = wires(api)
    first = exchange(api, fast, [get()] * 2)
    assert api.put("/v1/kv/ns/key", {"value": "1"}).json()["visible"]
    api.settled()
    second = exchange(api, fast, [get()] * 2)
    assert second == exchange(api, plain, [get()] * 2)
    assert second[0] == second[1] != first[1]
    serial = api.gateway.view.serial
    api.loop.run(api.gateway.write(Clock(actor=Actor("gw", "http")), None))
    api.settled()
    assert api.gateway.view.serial == serial  # no epoch: only the offset is another
    third = exchange(api, fast, [get()])
    assert third == exchange(api, plain, [get()])
    assert third[0] != second[0]
    assert fast.fast.hits == 5


def test_the_date_moves(quiet: HttpApi) -> None:
    fast, _ = wires(quiet)
    first = exchange(quiet, fast, [get()] * 2)
    fast.state.default_headers = [(b"date", b"Sat, 21 Nov 2026 13:00:01 GMT")]
    then = exchange(quiet, fast, [get()])
    assert then[0] == first[1].replace(b"13:00:00", b"13:00:01") != first[1]
    assert fast.fast.hits == 3


def test_nothing_is_kept_of_a_request(quiet: HttpApi) -> None:
    """However a path is spelt, and whatever else a request says."""
    fast, _ = wires(quiet)
    answers = fast.app.context.answers[Reads.LIVE]
    first = exchange(quiet, fast, [get()])
    kept_bytes = answers.held_bytes
    for number in range(64):
        letters = (f"%{ord(letter):02x}" if number >> bit & 1 else letter for bit, letter in enumerate("orders"))
        path = f"/v1/topics/{''.join(letters)}/route".encode()
        assert exchange(quiet, fast, [get(path, b"X-Request-Id: %d" % number)]) == first
    assert fast.fast.hits == 65
    assert answers.held_bytes == kept_bytes


# --- who may read, and what is counted ---


def test_protected_reads_are_left_to_the_application(quiet: HttpApi) -> None:
    fast, plain = wires(quiet, tokens={"alice": "secret"}, protect_reads=True)
    right, wrong = get(PATH, b"Authorization: Bearer secret"), get(PATH, b"Authorization: Bearer wrong")
    said = [right, right, wrong, get(), right, wrong]
    found = exchange(quiet, fast, said)
    assert found == exchange(quiet, plain, said)
    assert [answer[9:12] for answer in found[:6]] == [b"200", b"200", b"401", b"401", b"200", b"401"]
    assert fast.fast.hits == 0


def test_they_are_counted(quiet: HttpApi) -> None:
    fast, plain = wires(quiet)
    said = [get(), get(), get(PATH, b"If-None-Match: *"), get(PATH, b"If-None-Match: *"), get(b"/v1/topics/no/route")]
    counted = []
    for wire in (fast, plain):
        exchange(quiet, wire, said)
        text = b"".join(exchange(quiet, wire, [get(b"/metrics")])).decode()
        names = ("rocketmq_namesrv_requests_total", "rocketmq_namesrv_route_request_latency_count")
        counted.append([line for line in text.splitlines() if line.startswith(names)])
    assert counted[0] == counted[1]
    assert 'rocketmq_namesrv_requests_total{code="0",listener="http",request="getTopicRoute"} 4.0' in counted[0]
    assert fast.fast.hits == 4


def test_a_defect_is_the_application_s_to_answer(quiet: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = wires(quiet)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(fast.app.context.answers[Reads.LIVE], "route", fail)
    assert exchange(quiet, fast, [get()])[0].startswith(b"HTTP/1.1 500 ")


# --- the connection ---


def test_a_client_that_does_not_read_is_not_written_to(quiet: HttpApi) -> None:
    fast, _ = wires(quiet)

    async def tell() -> None:
        connection = fast.connect()
        connection.feed(get())
        assert fast.fast.hits == 1
        connection.take()
        connection.protocol.pause_writing()
        connection.feed(get())
        assert fast.fast.hits == 1
        assert connection.take() == b""
        connection.protocol.resume_writing()
        await connection.idle()
        assert connection.take().startswith(b"HTTP/1.1 200")
        await connection.end()

    quiet.loop.run(tell())


def test_bytes_after_waiting_requests_are_parsed_once_those_are_answered(quiet: HttpApi) -> None:
    """Few requests wait at a time, so they take little memory."""
    fast, _ = wires(quiet)
    asked = get(b"/v1/topics/none/route") + get(b"/healthz") * 1000

    async def tell() -> None:
        connection = fast.connect()
        connection.feed(asked[:-1])
        assert not connection.transport.reading
        assert connection.protocol.held_bytes < 20 * len(asked)
        most = len(connection.protocol.pipeline)
        while connection.state.tasks:
            await asyncio.wait(set(connection.state.tasks), return_when=asyncio.FIRST_COMPLETED)
            most = max(most, len(connection.protocol.pipeline))
        assert 50 < most < 250
        assert connection.take().count(b"HTTP/1.1 200") == 999
        assert connection.transport.reading
        assert connection.protocol.held_bytes < 100  # the head that is not complete
        connection.feed(asked[-1:])
        await connection.idle()
        assert connection.take().startswith(b"HTTP/1.1 200")
        assert connection.protocol.held_bytes == 0
        await connection.end()

    quiet.loop.run(tell())


@pytest.mark.parametrize("asked", [b"", get(), get(b"/healthz") * 3, get(b"/healthz") * 1000, get()[:-2]])
def test_a_closed_connection_is_freed_at_once(quiet: HttpApi, asked: bytes) -> None:
    """It does not wait for the garbage collector, which comes late."""
    fast, _ = wires(quiet)

    async def tell() -> weakref.ref[Any]:
        connection = fast.connect()
        connection.feed(asked)
        await connection.end()
        return weakref.ref(connection.protocol)

    gc.disable()
    try:
        assert quiet.loop.run(tell())() is None
    finally:
        gc.enable()


def test_a_stop_closes_it(quiet: HttpApi) -> None:
    fast, _ = wires(quiet)

    async def tell() -> None:
        connection = fast.connect()
        connection.feed(get(b"/v1/topics"))
        connection.protocol.shutdown()  # while it is under way: answered, then closed
        await connection.idle()
        assert b"connection: close" in connection.take()
        assert connection.transport.closed
        other = fast.connect()
        other.feed(get())
        answer = other.take()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection" not in answer
        other.protocol.shutdown()
        assert other.transport.closed
        other.protocol.data_received(get())  # as if it had been read before the close
        assert other.take() == b""
        assert fast.fast.hits == 1
        await other.idle()

    quiet.loop.run(tell())


def test_keep_alive_counts_from_the_last_answer(quiet: HttpApi) -> None:
    fast, _ = wires(quiet, keep_alive_s=1, header_timeout_s=0.2)

    async def tell() -> None:
        loop = asyncio.get_running_loop()
        connection = fast.connect()
        connection.feed(get())
        await connection.idle()
        began = last = loop.time()
        while loop.time() < began + 1.3 and not connection.transport.closed:  # as after a second without the processor
            connection.feed(get())
            last = loop.time()
            await asyncio.sleep(0.01)
        while not connection.transport.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < last + 30, "an idle connection is not closed"
        assert loop.time() >= last + 0.9
        # With the first request of a connection its deadline ends, and its idle time begins.
        second = fast.connect()
        second.feed(get())
        last = loop.time()
        while not second.transport.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < last + 30, "an idle connection is not closed"
        assert loop.time() >= last + 0.9
        assert b"408" not in second.take()

    quiet.loop.run(tell())
    assert fast.fast.hits > 5

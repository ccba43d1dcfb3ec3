# SPDX-License-Identifier: Apache-2.0
"""No byte of a body is read as a request, and no request is lost, however the bytes are cut.

What the application was made to do is compared with an independent, strict reading of the same bytes
(`dev.support.strict_http`). Connections are in memory; `test_proxies` has real ones, and real proxies in front.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.http import protocol
from dev.support.executed import Executed
from dev.support.http_api import HttpApi
from dev.support.messages import CHUNKED, CORPUS, INNER, PLAIN, chunked, cut, message, segments, sized
from dev.support.strict_http import Asked, End, Reading, read_stream
from tests.api.http.wire import Connection, CountingRoutes, Wire

ANSWER = re.compile(rb"HTTP/1\.1 (?!100)([0-9]{3}) ")
SMUGGLED = Asked(b"DELETE", b"/v1/topics/smuggled", b"")


@pytest.fixture(scope="module")
def executed(quiet: HttpApi) -> Executed:
    return Executed(quiet.app)


def exchange(api: HttpApi, front: Executed, segments: Sequence[bytes], *, waiting: bool = True) -> bytes:
    """All that a connection says, and at the end whether the server closed it."""

    async def settle(connection: Connection) -> None:
        turns = 0
        while turns < 5:  # as many turns as it takes to bring a part of a body to its reader
            await asyncio.sleep(0)
            tasks = connection.state.tasks
            turns = turns + 1 if len(tasks) <= front.waiting else 0
            if not turns:
                await asyncio.wait(tasks, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)

    async def talk() -> bytes:
        connection = Wire(front.app, CountingRoutes, front).connect()
        for segment in segments:
            if waiting or not connection.transport.reading:
                await settle(connection)
            connection.feed(segment)
        await settle(connection)
        said = connection.take() + (b"closed" if connection.transport.closed else b"open")
        await connection.end()
        return said

    return api.loop.run(talk())


def check(api: HttpApi, executed: Executed, parts: Sequence[bytes], *, waiting: bool) -> Reading:
    """Send segments, and compare."""
    expected = read_stream(b"".join(parts))
    executed.forget()
    said = exchange(api, executed, parts, waiting=waiting)
    assert executed.whole == expected.whole
    assert len(executed.broken) <= (expected.begun is not None)
    for broken in executed.broken:
        assert expected.begun is not None
        assert (broken.method, broken.target) == (expected.begun.method, expected.begun.target)
        assert expected.begun.body.startswith(broken.body)
    statuses = ANSWER.findall(said)
    count = len(expected.whole)
    if expected.end is End.REFUSED:
        assert len(statuses) == count + 1
        assert statuses[-1] == b"400" or executed.broken  # which answers before it knows
    else:
        assert count <= len(statuses) <= count + (expected.end is End.OPEN)
    if expected.end is not End.OPEN:
        assert said.endswith(b"closed")
    return expected


@pytest.mark.parametrize("name", CORPUS)
def test_every_form(quiet: HttpApi, executed: Executed, name: str) -> None:
    data = CORPUS[name] + PLAIN
    for waiting in (True, False):
        check(quiet, executed, [data], waiting=waiting)
        check(quiet, executed, [PLAIN + data], waiting=waiting)
    head = data.find(b"\r\n\r\n") + 4
    check(quiet, executed, cut(data, [head]), waiting=True)
    check(quiet, executed, cut(data, list(range(1, min(len(data), 400)))), waiting=True)


@pytest.mark.parametrize("name", CORPUS)
def test_every_form_in_pieces(quiet: HttpApi, executed: Executed, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The parser gets one byte at a time, and stops as soon as a request waits for another one."""
    monkeypatch.setattr(protocol, "_PIECE_BYTES", 1)
    for waiting in (True, False):
        check(quiet, executed, [PLAIN * 3 + CORPUS[name] + PLAIN], waiting=waiting)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=segments(), piece_bytes=st.sampled_from((20, 8192)))
def test_any_stream_cut_anywhere(quiet: HttpApi, executed: Executed, parts: list[bytes], piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "_PIECE_BYTES", piece_bytes)
        for waiting in (True, False):
            check(quiet, executed, parts, waiting=waiting)


@pytest.mark.parametrize("name", CORPUS)
def test_an_answer_that_does_not_wait_for_the_body(quiet: HttpApi, name: str) -> None:
    """The rest of the body is still the body: of an unknown path, say, or of a method that takes none."""
    data = CORPUS[name].replace(b"POST /v1/brokers/heartbeat", b"POST /v1/brokers/heart.beat") + PLAIN
    expected = read_stream(data)
    head = data.find(b"\r\n\r\n") + 4
    for places in ([], [head], list(range(1, min(len(data), 400)))):
        front = Executed(quiet.app, reads_bodies=False)
        exchange(quiet, front, cut(data, places))
        asked = [*expected.whole, *([expected.begun] if expected.begun is not None else [])]
        found = [(one.method, one.target) for one in front.whole]
        assert found == [(one.method, one.target) for one in asked][: len(found)]
        assert len(found) >= len(expected.whole)


def test_a_body_behind_an_upgrade_is_the_body(quiet: HttpApi, executed: Executed) -> None:
    """In the segment of the head, in a later one, and cut at every byte."""
    for make in (sized, chunked):
        data = make(b"Connection: Upgrade", b"Upgrade: h2c") + PLAIN
        for place in range(1, len(data)):
            found = check(quiet, executed, cut(data, [place]), waiting=True)
            assert [asked.body for asked in found.whole] == [INNER, b""]
            assert SMUGGLED not in executed.whole + executed.broken


def test_the_answers_before_a_refusal_are_sent(quiet: HttpApi, executed: Executed) -> None:
    said = exchange(
        quiet,
        executed,
        [message(line=b"GET /v1/topics HTTP/1.1") * 3 + message(line=b"GET / HTTP/2.0")],
        waiting=False,
    )
    assert ANSWER.findall(said) == [b"200"] * 3 + [b"400"]
    assert b"HTTP/2.0 is not supported" in said
    assert said.endswith(b"closed")


@pytest.mark.parametrize("behind", [b"", PLAIN])
def test_a_broken_request_in_a_segment_has_no_effect(quiet: HttpApi, behind: bytes) -> None:
    """Also where the application does not read bodies."""
    data = message(CHUNKED, line=b"DELETE /v1/topics/orders HTTP/1.1", body=b"5\r\n1234567\r\n0\r\n\r\n")
    front = Executed(quiet.app, reads_bodies=False)
    said = exchange(quiet, front, [behind + data])
    assert ANSWER.findall(said) == [b"200"] * bool(behind) + [b"400"]
    assert [asked.method for asked in front.whole] == [b"GET"] * bool(behind)


def test_trailers_are_no_headers(quiet: HttpApi) -> None:
    """A trailer could say who asks, or from where."""
    seen: list[Any] = []

    class Watching(Executed):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await super().__call__(scope, receive, send)
            seen.extend(scope["headers"])

    data = b"2\r\n{}\r\n0\r\nAuthorization: Bearer secret\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
    exchange(quiet, Watching(quiet.app), [message(b"Transfer-Encoding: chunked", body=data)])
    assert [name for name, _ in seen] == [b"host", b"transfer-encoding"]


def test_trailers_are_bounded(quiet: HttpApi) -> None:
    front = Executed(quiet.app)
    endless = [b"x" * 20_000] * 10
    said = exchange(
        quiet,
        front,
        [message(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\nX: "), *endless],
    )
    assert said.endswith(b"closed")
    assert len(front.broken) == 1


def test_the_target_counts_instead_of_the_host_header(quiet: HttpApi, executed: Executed) -> None:
    evil = message(line=b"GET http://evil.example/v1/topics HTTP/1.1")
    said = exchange(quiet, executed, [evil, message(line=b"GET http://localhost/v1/topics HTTP/1.1")])
    assert ANSWER.findall(said) == [b"403", b"200"]


def test_the_strict_reading_against_h11() -> None:
    """Two independent parsers agree with the strict one on what it accepts."""
    compared = 0
    for name, data in CORPUS.items():
        expected = read_stream(data)
        if expected.end is End.REFUSED or b"http://" in data.lower() or data.startswith((b"OPTIONS *", b"GET  ")):
            continue
        found = [Asked(asked.method, asked.target.removesuffix(b"?"), asked.body) for asked in by_h11(data)]
        assert found[: len(expected.whole)] == expected.whole, name
        compared += 1
    assert compared > 60


def by_h11(data: bytes) -> list[Asked]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
    connection.receive_data(data.lstrip(b"\r\n"))
    found: list[Asked] = []
    asked: h11.Request | None = None
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return found
        if isinstance(event, h11.Request):
            asked, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert asked is not None
            found.append(Asked(asked.method, asked.target, body))
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                return found
            connection.start_next_cycle()
        else:
            return found

# SPDX-License-Identifier: Apache-2.0
"""A request that came before is answered as if it were the first of its kind: every byte, whatever comes around it.

Two servers over one gateway: one knows requests, one never learns any. Connections are in memory, so that segments are
cut where the test wants them; `test_server` has the real socket.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.app import create_app
from api.http.known import MAX_REQUEST_BYTES, KnownRequests
from api.http.settings import HttpSettings
from tests.api.http.wire import PATH, Wire, get, tag, told, wires
from tests.support.doors import Door

LEARNT: dict[str, bytes] = {
    "plain": get(),
    "no headers": b"GET %b HTTP/1.1\r\n\r\n" % PATH,
    "other host": get(PATH, b"Host: 10.9.8.7:99"),
    "accept": get(PATH, b"Accept: text/html", b"Accept-Encoding: gzip", b"User-Agent: x"),
    "keep-alive": get(PATH, b"Connection: Keep-Alive"),
    "another's tag": get(PATH, b'If-None-Match: "1-0000"'),
    "any tag": get(PATH, b"If-None-Match: *"),
    "two tags": get(PATH, b'If-None-Match: "1-0000"', b"If-None-Match: nonsense"),
    "range": get(PATH, b"Range: bytes=0-1"),
    "escaped": get(b"/v1/topics/%6frders/route"),
    "fragment": get(PATH + b"#part"),
    "absolute": get(b"http://a" + PATH),
    "empty query": get(PATH + b"?"),
    "longest": get(PATH, b"X: " + b"a" * (MAX_REQUEST_BYTES - len(get(PATH, b"X: ")))),
}
NEVER: dict[str, bytes] = {
    "HEAD": get(method=b"HEAD"),
    "OPTIONS": get(method=b"OPTIONS"),
    "lower case": get(method=b"get"),
    "close": get(PATH, b"Connection: close"),
    "HTTP/1.0": get(version=b"1.0"),
    "HTTP/1.0 keep-alive": get(PATH, b"Connection: keep-alive", version=b"1.0"),
    "HTTP/2.0": get(version=b"2.0"),
    "as_of": get(PATH + b"?as_of=1"),
    "wait_for": get(PATH + b"?wait_for=0"),
    "misspelt": get(PATH + b"?asof=1"),
    "token": get(PATH, b"Authorization: Bearer secret"),
    "wrong token": get(PATH, b"Authorization: Bearer wrong"),
    "cookie": get(PATH, b"Cookie: a=b"),
    "no such topic": get(b"/v1/topics/nowhere/route"),
    "no such name": get(b"/v1/topics/..%2Fx/route"),
    "no such path": get(b"/v1/nothing"),
    "no UTF-8": get(b"/v1/topics/%ff/route"),
    "other path": get(b"/v1/topics"),
    "long": get(PATH, b"X: " + b"a" * MAX_REQUEST_BYTES),
    "body": get(PATH, b"Content-Length: 2") + b"{}",
    "no body": get(PATH, b"Content-Length: 0"),
    "chunked": get(PATH, b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "expect": get(PATH, b"Expect: 100-continue"),
    "upgrade": get(PATH, b"Connection: Upgrade", b"Upgrade: websocket"),
    "upgrade to h2c": get(PATH, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: "),
    "POST": get(b"/v1/brokers/register", b"Content-Length: 2", method=b"POST") + b"{}",
    "CONNECT": get(b"a:80", method=b"CONNECT"),
    "line feeds": get().replace(b"\r\n", b"\n"),
    "folded": get(PATH, b"X: a\r\n b"),
    "before it": b"\r\n" + get(),
    "garbage": b"\x16\x03\x01\x02\x00\r\n\r\n",
}
ALL = {**LEARNT, **NEVER}
REFUSED = {"lower case", "HTTP/2.0", "line feeds", "folded", "garbage", "CONNECT", "upgrade", "upgrade to h2c"}
"""The parser refuses them, or what follows. That ends the connection with an answer under way, if there is one: how
much of it comes is a matter of time, so nothing can be said of these without waiting."""


@pytest.mark.parametrize("name", LEARNT)
def test_the_first_answer_and_those_after_it_are_one(quiet: Door, name: str) -> None:
    knowing, plain = wires(quiet)
    said = [LEARNT[name]] * 3
    found = told(quiet, knowing, said)
    assert found == told(quiet, plain, said)
    assert found[0] == found[1] == found[2]
    assert found[0].startswith((b"HTTP/1.1 200 OK\r\ndate: ", b"HTTP/1.1 304 Not Modified\r\ndate: "))
    assert (knowing.lane.hits, len(knowing.lane.known)) == (2, 1)
    assert plain.lane.hits == 0
    assert knowing.state.total_requests == plain.state.total_requests == 3
    # Others' connections know it, too.
    assert told(quiet, knowing, said[:1])[0] == found[0]
    assert knowing.lane.hits == 3


@pytest.mark.parametrize("name", NEVER)
def test_what_is_parsed_each_time(quiet: Door, name: str) -> None:
    knowing, plain = wires(quiet)
    assert told(quiet, knowing, [get(), get()]) == told(quiet, plain, [get(), get()])
    said = [NEVER[name], NEVER[name], get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.known.get(NEVER[name]) is None
    assert len(knowing.lane.known) == 1


def test_a_fresh_copy_is_not_sent_again(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(PATH, b"If-None-Match: " + tag(quiet))] * 3
    found = told(quiet, knowing, said)
    assert found == told(quiet, plain, said)
    assert found[2].startswith(b"HTTP/1.1 304 Not Modified\r\n")
    assert knowing.lane.hits == 2


def test_two_in_one_segment(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(), get() * 2, get() + b"GET /v1", b"/topics HTTP/1.1\r\n\r\n", get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1
    assert len(knowing.lane.known) == 1


def test_what_looks_known_inside_another_request_is_not(quiet: Door) -> None:
    """The head of one request, its body, or the tail of a segment: none is a request because it reads like one."""
    for around in (
        b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX: ",
        get(b"/v1/nothing", b"Content-Length: %d" % len(get())),
        get() + b"GET /v1/topics HTTP/1.1\r\nX: ",
        get() + get(b"/v1/nothing", b"Content-Length: %d" % len(get())),
        get(PATH, b"Transfer-Encoding: chunked") + b"%x\r\n" % len(get()),
        b"\r",
        b"\r\n",
        b"G",
        get(b"/v1/nothing", b"Connection: Upgrade", b"Upgrade: websocket"),
        get(b"a:80", method=b"CONNECT"),
    ):
        knowing, plain = wires(quiet)
        said = [get(), around, get(), get(), get()]
        for _ in range(2):
            assert told(quiet, knowing, said) == told(quiet, plain, said), around


def test_the_tail_of_a_request_teaches_nothing(quiet: Door) -> None:
    """Its last segment reads like a request of its own, and the whole is one that the short lane answers."""
    knowing, plain = wires(quiet)
    said = [b"GET /v1/topics/payments/route HTTP/1.1\r\nX: ", get(), get(), get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1


def test_an_empty_line_before_it_is_the_parsers(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(), b"\r\n", get(), get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1


def test_what_is_asked_again_stays_known(quiet: Door) -> None:
    app = create_app(quiet.gateway, settings=HttpSettings())
    wire = Wire(app, KnownRequests(max_requests=1, idle_s=0.0))
    other = LEARNT["keep-alive"]
    told(quiet, wire, [get(), get(), other])
    assert wire.lane.known.get(other) is None
    told(quiet, wire, [other])  # nobody asked for the first meanwhile
    assert wire.lane.known.get(other) is not None
    assert len(wire.lane.known) == 1


def test_cut_anywhere(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    for place in range(1, len(get())):
        said = [get(), get()[:place], get()[place:], get()]
        assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert len(knowing.lane.known) == 1


@st.composite
def conversations(draw: st.DrawFn, *, without: frozenset[str] = frozenset()) -> list[bytes]:
    """Requests, mostly in a segment each, some cut or glued."""
    often = ["plain"] * 12 + ["keep-alive"] * 6
    others = [name for name in ALL if name not in without]
    names = draw(st.lists(st.sampled_from(often + others), min_size=1, max_size=8))
    segments = [b""]
    for name in names:
        request = ALL[name]
        if draw(st.integers(0, 4)) == 0:
            place = draw(st.integers(0, len(request)))
            segments += [request[:place], request[place:]]
        elif draw(st.integers(0, 4)) == 0:
            segments[-1] += request
        else:
            segments.append(request)
    return [segment for segment in segments if segment]


@settings(deadline=None, max_examples=150)
@given(talk=st.lists(conversations(), min_size=1, max_size=3))
def test_any_conversation(quiet: Door, talk: list[list[bytes]]) -> None:
    knowing, plain = wires(quiet)
    for said in talk:
        assert told(quiet, knowing, said) == told(quiet, plain, said)


@settings(deadline=None, max_examples=150)
@given(talk=st.lists(conversations(without=frozenset(REFUSED)), min_size=1, max_size=3))
def test_any_conversation_that_does_not_wait_for_answers(quiet: Door, talk: list[list[bytes]]) -> None:
    knowing, plain = wires(quiet)
    for said in talk:
        assert told(quiet, knowing, said, waiting=False) == told(quiet, plain, said, waiting=False)

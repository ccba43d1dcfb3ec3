# SPDX-License-Identifier: Apache-2.0
"""The fast path answers as the application does: every byte, whatever comes around the request.

Two servers over one gateway: one has the fast path, one does not. Connections are in memory, so that segments are cut
where the test wants them; `test_server` has the real socket.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.support.http_api import HttpApi
from tests.api.http.wire import PATH, exchange, get, tag, wires

FAST: dict[str, bytes] = {
    "plain": get(),
    "no more headers": b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % PATH,
    "other host": get(PATH).replace(b"localhost", b"10.9.8.7:99"),
    "accept": get(PATH, b"Accept: text/html", b"Accept-Encoding: gzip", b"User-Agent: x"),
    "keep-alive": get(PATH, b"Connection: Keep-Alive"),
    "another's tag": get(PATH, b'If-None-Match: "1-0000"'),
    "any tag": get(PATH, b"If-None-Match: *"),
    "two tags": get(PATH, b'If-None-Match: "1-0000"', b"If-None-Match: nonsense"),
    "range": get(PATH, b"Range: bytes=0-1"),
    "escaped": get(b"/v1/topics/%6frders/route"),
    "all escaped": get(b"/v1/topics/%6f%72%64%65%72%73/route"),
    "long": get(PATH, b"X: " + b"a" * 10_000),
    "token": get(PATH, b"Authorization: Bearer secret"),
    "cookie": get(PATH, b"Cookie: a=b"),
    "expect": get(PATH, b"Expect: 100-continue"),
    "an empty line before it": b"\r\n" + get(),
    "upgrade without asking": get(PATH, b"Upgrade: h2c"),
    "upgrade": get(PATH, b"Connection: Upgrade", b"Upgrade: websocket"),
    "upgrade to h2c": get(PATH, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: "),
}
SLOW: dict[str, bytes] = {
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
    "no such topic": get(b"/v1/topics/nowhere/route"),
    "no such name": get(b"/v1/topics/..%2Fx/route"),
    "no such path": get(b"/v1/nothing"),
    "no UTF-8": get(b"/v1/topics/%ff/route"),
    "other path": get(b"/v1/topics"),
    "slash in the name": get(b"/v1/topics/a/orders/route"),
    "escaped slash in the name": get(b"/v1/topics/a%2Forders/route"),
    "query in the name": get(b"/v1/topics/orders?a=/route"),
    "fragment in the name": get(b"/v1/topics/orders#a/route"),
    "no name": get(b"/v1/topics//route"),
    "half a name": get(b"/v1/topics/route"),
    "fragment": get(PATH + b"#part"),
    "absolute": get(b"http://a" + PATH),
    "empty query": get(PATH + b"?"),
    "other host": get(PATH).replace(b"Host: localhost", b"Host: evil.example"),
    "no host": b"GET %b HTTP/1.1\r\n\r\n" % PATH,
    "two hosts": get(PATH).replace(b"Host: localhost", b"Host: evil.example\r\nHost: localhost"),
    "body": get(PATH, b"Content-Length: 2") + b"{}",
    "no body": get(PATH, b"Content-Length: 0"),
    "chunked": get(PATH, b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "POST": get(b"/v1/brokers/register", b"Content-Length: 2", method=b"POST") + b"{}",
    "CONNECT": get(b"a:80", method=b"CONNECT"),
    "line feeds": get().replace(b"\r\n", b"\n"),
    "folded": get(PATH, b"X: a\r\n b"),
    "garbage": b"\x16\x03\x01\x02\x00\r\n\r\n",
}
ALL = {**FAST, **SLOW}


@pytest.mark.parametrize("name", FAST)
def test_requests_of_the_fast_path(quiet: HttpApi, name: str) -> None:
    fast, plain = wires(quiet)
    said = [FAST[name]] * 3
    found = exchange(quiet, fast, said)
    assert found == exchange(quiet, plain, said)
    assert found[0] == found[1] == found[2]
    assert found[0].startswith((b"HTTP/1.1 200 OK\r\ndate: ", b"HTTP/1.1 304 Not Modified\r\ndate: "))
    assert (fast.fast.hits, plain.fast.hits) == (3, 0)
    assert fast.state.total_requests == plain.state.total_requests == 3


@pytest.mark.parametrize("name", SLOW)
def test_requests_that_the_fast_path_leaves_to_the_application(quiet: HttpApi, name: str) -> None:
    fast, plain = wires(quiet)
    said = [SLOW[name], SLOW[name], get()]
    assert exchange(quiet, fast, said) == exchange(quiet, plain, said)
    hits = fast.fast.hits
    assert hits <= 1
    exchange(quiet, fast, [SLOW[name]])
    assert fast.fast.hits == hits


def test_a_fresh_copy_is_not_sent_again(quiet: HttpApi) -> None:
    fast, plain = wires(quiet)
    said = [get(PATH, b"If-None-Match: " + tag(quiet))] * 3
    found = exchange(quiet, fast, said)
    assert found == exchange(quiet, plain, said)
    assert found[2].startswith(b"HTTP/1.1 304 Not Modified\r\n")
    assert fast.fast.hits == 3


def test_the_first_of_several_requests_in_one_segment_is_answered_at_once(quiet: HttpApi) -> None:
    """The others take turns with other connections: a client that sends thousands at a time delays no other client."""
    fast, plain = wires(quiet)
    said = [get(), get() * 20, get() + b"GET /v1", b"/topics HTTP/1.1\r\nHost: a\r\n\r\n", get()]
    assert exchange(quiet, fast, said) == exchange(quiet, plain, said)
    assert fast.fast.hits == 4


def test_behind_a_request_under_way_it_waits(quiet: HttpApi) -> None:
    fast, plain = wires(quiet)
    said = [get(b"/v1/topics"), get()]
    assert exchange(quiet, fast, said, waiting=False) == exchange(quiet, plain, said, waiting=False)
    assert fast.fast.hits == 0


def test_a_request_inside_a_body_is_not_executed(quiet: HttpApi) -> None:
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
        fast, plain = wires(quiet)
        said = [get(), around, get(), get(), get()]
        for _ in range(2):
            assert exchange(quiet, fast, said) == exchange(quiet, plain, said), around


def test_cut_anywhere(quiet: HttpApi) -> None:
    fast, plain = wires(quiet)
    for place in range(1, len(get())):
        said = [get(), get()[:place], get()[place:], get()]
        assert exchange(quiet, fast, said) == exchange(quiet, plain, said)
    assert fast.fast.hits == 3 * (len(get()) - 1)


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Requests, mostly in a segment each, some cut or glued."""
    often = ["plain"] * 6 + ["keep-alive"] * 3
    names = draw(st.lists(st.sampled_from(often + list(ALL)), min_size=1, max_size=8))
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


@settings(deadline=None, max_examples=min(150, 3 * settings().max_examples // 2))
@given(talk=st.lists(conversations(), min_size=1, max_size=3))
def test_any_conversation(quiet: HttpApi, talk: list[list[bytes]]) -> None:
    fast, plain = wires(quiet)
    for said in talk:
        assert exchange(quiet, fast, said) == exchange(quiet, plain, said)


@settings(deadline=None, max_examples=min(150, 3 * settings().max_examples // 2))
@given(talk=st.lists(conversations(), min_size=1, max_size=3))
def test_any_conversation_that_does_not_wait_for_answers(quiet: HttpApi, talk: list[list[bytes]]) -> None:
    fast, plain = wires(quiet)
    for said in talk:
        assert exchange(quiet, fast, said, waiting=False) == exchange(quiet, plain, said, waiting=False)

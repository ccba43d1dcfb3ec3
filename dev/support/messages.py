# SPDX-License-Identifier: Apache-2.0
"""Requests in every form that RFC 9112 allows, and in many that it does not, with a request inside their bodies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

HOST: Final = b"Host: localhost"
INNER: Final = b"DELETE /v1/topics/smuggled HTTP/1.1\r\n" + HOST + b"\r\n\r\n"
"""Request that would show on the log."""
JSON: Final = b"Content-Type: application/json"
WEBSOCKET: Final = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
H2C: Final = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAAB")
CHUNKED: Final = b"Transfer-Encoding: chunked"


def message(
    *headers: bytes, line: bytes = b"POST /v1/brokers/heartbeat HTTP/1.1", host: bytes | None = HOST, body: bytes = b""
) -> bytes:
    """The bytes of a request; a body has no length that its headers do not name."""
    return b"".join(b"%b\r\n" % part for part in (line, *([host] if host is not None else []), *headers, b"")) + body


def sized(*headers: bytes, body: bytes = INNER, **more: bytes) -> bytes:
    """A request with a length."""
    return message(*headers, b"Content-Length: %d" % len(body), body=body, **more)


def chunked(*headers: bytes, body: bytes = INNER, **more: bytes) -> bytes:
    """A request in chunks of 7 bytes."""
    parts = [body[start : start + 7] for start in range(0, len(body), 7)]
    data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return message(*headers, CHUNKED, body=data + b"0\r\n\r\n", **more)


PLAIN: Final = message(line=b"GET /v1/topics/orders/route HTTP/1.1")
_UPGRADES: Final = (
    WEBSOCKET,
    H2C,
    (b"Upgrade: h2c",),
    (b"Connection: upgrade",),
    (b"upgrade: ", b"connection: UPGRADE"),
)
_GET: Final = b"GET /v1/topics HTTP/1.1"

CORPUS: Final[dict[str, bytes]] = {
    **{
        f"{kind}, upgrade {number}{'' if line is None else ', GET'}": make(*upgrade, **({} if line is None else {"line": line}))
        for kind, make in (("sized", sized), ("chunked", chunked), ("without a body", message))
        for number, upgrade in enumerate(_UPGRADES)
        for line in (None, _GET)
    },
    "upgrade of the plain read": message(*WEBSOCKET, line=b"GET /v1/topics/orders/route HTTP/1.1"),
    "upgrade, close": sized(b"Connection: upgrade, close", b"Upgrade: h2c"),
    "upgrade in two lines": sized(b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Upgrade: h3"),
    "upgrade, HTTP/1.0": sized(*WEBSOCKET, line=b"POST /v1/brokers/heartbeat HTTP/1.0"),
    "expect": sized(b"Expect: 100-continue", JSON),
    "expect, upgrade": sized(b"Expect: 100-continue", *H2C),
    "expect, HTTP/1.0": sized(b"Expect: 100-continue", line=b"POST /v1/brokers/heartbeat HTTP/1.0"),
    **{f"host {host!r}": message(host=host, line=_GET) for host in (
        b"Host:", b"Host: a:80", b"Host: [::1]:8080", b"Host: a b", b"Host: a@b", b"Host: a/b", b"Host: a,b", b"Host: a\tb",
        b"host: \xff", b"Host: a\r\nHost: a", b"Host: a\r\nHost: b", b"Host : a", b"Host\t: a", b"Host: [::1", b"Host: a:b",
    )},
    "no host": message(host=None, line=_GET),
    "no host, plain read": message(host=None, line=b"GET /v1/topics/orders/route HTTP/1.1"),
    "two hosts, plain read": message(HOST, line=b"GET /v1/topics/orders/route HTTP/1.1"),
    "no host, HTTP/1.0": message(host=None, line=b"GET /v1/topics HTTP/1.0"),
    **{f"coding {value!r}": message(b"Transfer-Encoding: " + value, body=b"0\r\n\r\n" + INNER) for value in (
        b"chunked", b"Chunked", b" chunked ", b"\tchunked", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked",
        b"identity", b"xchunked", b"chunkedx", b"chunked;q=1", b"", b",chunked", b"chunked,", b"\x0bchunked", b'"chunked"',
        b"chunked\r\nTransfer-Encoding: chunked", b"identity\r\nTransfer-Encoding: chunked", b"gzip",
        b"chunked\r\nTransfer-Encoding: identity", b"\r\n chunked", b"chunked\r\n identity", b"cow", b"trailers",
    )},
    "coding, space before the colon": message(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + INNER),
    "coding, HTTP/1.0": message(CHUNKED, line=b"POST /v1/brokers/heartbeat HTTP/1.0", body=b"0\r\n\r\n" + INNER),
    "coding and length": message(CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n" + INNER),
    "length and coding": message(b"Content-Length: %d" % (5 + len(INNER)), CHUNKED, body=b"0\r\n\r\n" + INNER),
    "length and coding, upgrade": message(*H2C, b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + INNER),
    **{f"length {value!r}": message(b"Content-Length: " + value, body=b"12345" + INNER) for value in (
        b"5", b"05", b" 5 ", b"5\t", b"+5", b"-5", b"5, 5", b"5,", b"5 5", b"0x5", b"5.0", b"", b"5\r\nContent-Length: 5",
        b"5\r\nContent-Length: 6", b"0\r\nContent-Length: 5", b"18446744073709551621", b"5\x00", b"\xb25", b"five",
        b"\r\n 5", b"5\r\n 0", b"5;", b"5_0", b"99999",
    )},
    "length, space before the colon": message(b"Content-Length : 5", body=b"12345" + INNER),
    "length, underscore": message(b"Content_Length: 5", body=INNER),
    "length, no colon": message(b"Content-Length 5", body=b"12345" + INNER),
    **{f"chunks {data!r}": message(CHUNKED, body=data + INNER) for data in (
        b"5;a=b\r\n12345\r\n0\r\n\r\n", b'5;a="b;c"\r\n12345\r\n0;x\r\n\r\n', b"5 ;a\r\n12345\r\n0\r\n\r\n",
        b"5;a\n12345\r\n0\r\n\r\n", b"5;\x00\r\n12345\r\n0\r\n\r\n", b'5;a="\r\n12345\r\n0\r\n\r\n', b"5;\r\n12345\r\n0\r\n\r\n",
        b"5\n12345\n0\n\n", b"5\r12345\r0\r\r", b"05\r\n12345\r\n000\r\n\r\n", b"A\r\n0123456789\r\n0\r\n\r\n",
        b"0x5\r\n12345\r\n0\r\n\r\n", b"5 \r\n12345\r\n0\r\n\r\n", b" 5\r\n12345\r\n0\r\n\r\n", b"-5\r\n12345\r\n0\r\n\r\n",
        b"4\r\n12345\r\n0\r\n\r\n", b"6\r\n12345\r\n0\r\n\r\n", b"5\r\n123450\r\n\r\n", b"\r\n5\r\n12345\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\n12345\r\n0\r\n\r\n", b"5\r\n12345\r\n0\r\nX: y\r\nZ: \r\n\r\n", b"5\r\n12345\r\n0\r\nX : y\r\n\r\n",
        b"5\r\n12345\r\n0\r\nContent-Length: 9\r\n\r\n", b"5\r\n12345\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\n12345\r\n0\r\nHost: evil\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", b"5\r\n12345\r\n0\r\n",
        b"5\r\n12345\r\n0\r\nX: y\n\r\n", b"5\r\n12345\r\n0\r\n X: y\r\n\r\n", b"0\r\n\r\n", b"5\r\n12345",
    )},
    **{f"line {line!r}": message(line=line, body=INNER) for line in (
        b"GET /v1/topics HTTP/0.9", b"GET /v1/topics HTTP/1.0", b"GET /v1/topics HTTP/1.2", b"GET /v1/topics HTTP/2.0",
        b"GET /v1/topics HTTP/3.0", b"GET /v1/topics HTTP/1.10", b"GET /v1/topics HTTP/01.1", b"GET /v1/topics http/1.1",
        b"GET /v1/topics HTTP/1", b"GET /v1/topics", b"GET /v1/topics ", b"GET", b"GET HTTP/1.1", b"GET  /v1/topics  HTTP/1.1",
        b"GET\t/v1/topics HTTP/1.1", b"GET /v1/topics\tHTTP/1.1", b"GET /v1/topics HTTP/1.1 ", b" GET /v1/topics HTTP/1.1",
        b"get /v1/topics HTTP/1.1", b"GET /v1/topics HTTP/1.1\r", b"G\x00T /v1/topics HTTP/1.1", b"G(T /v1/topics HTTP/1.1",
        b"GET /v1/to pics HTTP/1.1", b"GET /v1/topics?a b HTTP/1.1", b"GET /v1/topics#a HTTP/1.1", b"GET /v1/t\x00 HTTP/1.1",
        b"GET /v1/t\xc3\xa4 HTTP/1.1", b"GET /v1/topics?\xff HTTP/1.1", b"GET /v1/topics? HTTP/1.1", b"GET /v1/topics?%zz HTTP/1.1",
        b"GET //v1/topics HTTP/1.1", b"GET /%2e%2e/v1 HTTP/1.1", b'GET /v1/"<>^`{|}\\ HTTP/1.1', b"GET v1/topics HTTP/1.1",
        b"GET http://localhost/v1/topics HTTP/1.1", b"GET HTTP://localhost:8080/v1/topics?a HTTP/1.1",
        b"GET http://localhost HTTP/1.1", b"GET http://localhost?a HTTP/1.1", b"GET http://other/v1/topics HTTP/1.1",
        b"GET http://a@localhost/v1/topics HTTP/1.1", b"GET http:///v1/topics HTTP/1.1", b"GET ftp://a/v1/topics HTTP/1.1",
        b"GET http://localhost/v1/topics#a HTTP/1.1", b"GET localhost:80 HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
        b"OPTIONS /v1/topics HTTP/1.1", b"HEAD /v1/topics HTTP/1.1", b"CONNECT localhost:80 HTTP/1.1", b"CONNECT / HTTP/1.1",
        b"PRI * HTTP/2.0", b"PRI / HTTP/1.1", b"TRACE / HTTP/1.1", b"PATCH / HTTP/1.1", b"DELETE /v1/nothing HTTP/1.1",
    )},
    **{f"header {header!r}": message(header, line=_GET, body=INNER) for header in (
        b"A: b\rc", b"A: b\nc: d", b"A: b\x00", b"A: b\x7f", b"A: \xff", b"A:", b"A:\tb\t", b"A:b", b": b", b"A b", b"A", b"A\x00: b",
        b"A(: b", b"\xc3\xa4: b", b"A: b\r\n c", b"A: b\r\n\tc", b"A:\r\n b", b" A: b", b"A: b\r", b"A: " + b"x" * 5000,
        b"Connection: close", b"Connection: keep-alive", b"connection: CLOSE", b"Connection: a, close", b"Connection: \x00",
        b"Expect: x", b"Trailer: X", b"Keep-Alive: timeout=5", b"TE: trailers, chunked",
    )},
    "keep-alive, HTTP/1.0": message(b"Connection: keep-alive", line=b"GET /v1/topics HTTP/1.0"),
    "folded first": message(host=b" Host: localhost", line=_GET, body=INNER),
    "line feeds": message(line=_GET).replace(b"\r\n", b"\n"),
    "line feeds and a body": sized(JSON).replace(b"\r\n", b"\n", 3),
    "carriage returns": message(line=_GET).replace(b"\r\n", b"\r"),
    "empty lines first": b"\r\n\r\n" + message(line=_GET),
    "a line feed first": b"\n" + message(line=_GET),
    "a space first": b" " + message(line=_GET),
    "an empty line first, upgrade": b"\r\n" + sized(*H2C),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "the proxy protocol": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + message(line=_GET),
}  # fmt: skip
"""One of each form; what is in doubt has a request behind it that must not run."""

_MAKERS: Final[tuple[Callable[..., bytes], ...]] = (message, sized, chunked)
_LINES: Final = st.builds(
    lambda method, target, version: b"%b %b HTTP/%b" % (method, target, version),
    st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH"]),
    st.sampled_from([b"/v1/topics", b"/v1/topics/orders/route", b"/v1/nothing?a=b", b"http://localhost/v1/topics", b"*", b"x"]),
    st.sampled_from([b"1.1"] * 6 + [b"1.0", b"2.0"]),
)  # fmt: skip
_EXTRA: Final = st.sampled_from(
    [
        *((*upgrade,) for upgrade in _UPGRADES),
        *((header,) for header in (b"Connection: close", b"Expect: 100-continue", b"A: b", HOST, CHUNKED, JSON)),
        *((b"Content-Length: %d" % size,) for size in (0, 5, len(INNER))),
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Some requests behind one another, a few bytes of them changed now and then."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            found.append(draw(st.sampled_from(list(CORPUS.values()))))
            continue
        make = draw(st.sampled_from(_MAKERS))
        extra = [header for headers in draw(st.lists(_EXTRA, max_size=3)) for header in headers]
        body = draw(st.sampled_from([INNER, b"", PLAIN, INNER * 3]) | st.binary(max_size=20))
        host = draw(st.sampled_from([HOST] * 8 + [None, b"host: [::1]"]))
        found.append(make(*extra, line=draw(_LINES), body=body, host=host))
    data = bytearray(b"".join(found))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(data) - 1))
        data[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\x00", b":", b"0"])
        )
    return bytes(data) + PLAIN


@st.composite
def segments(draw: st.DrawFn) -> list[bytes]:
    """A stream, cut anywhere."""
    data = draw(streams())
    places = sorted(draw(st.lists(st.integers(1, len(data) - 1), max_size=4)))
    return cut(data, places)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The parts of a stream between these places."""
    edges = [0, *places, len(data)]
    return [part for part in (data[start:end] for start, end in pairwise(edges)) if part]

# SPDX-License-Identifier: Apache-2.0
"""A connection's bytes to frames, however they are cut."""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import time
import tracemalloc
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.remoting.route_requests import RouteRequests
from remoting.codec.connection import PLAIN_FRAME_LIMIT_BYTES, Received, RemotingConnection
from remoting.codec.frame import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    HEADER_LIMIT_BYTES,
    RemotingCommand,
    decode_header,
    encode_frame,
)
from remoting.codec.reply import EncodedReply, response
from schemas.codes import SerializeType
from schemas.errors import ProtocolError

V1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 9876\r\n"
V2_START = b"\r\n\r\n\x00\r\nQUIT\n"
V2 = V2_START + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack(">HH", 51234, 9876)
V2_IPV6 = V2_START + b"\x21\x21\x00\x28" + b"\x20\x01\x0d\xb8" + b"\0" * 27 + b"\x01" + b"\x00\x50\x26\x94abcd"
V2_LOCAL = V2_START + b"\x20\x00\x00\x00"
V2_UNIX = V2_START + b"\x21\x31\x00\xd8" + b"\0" * 216


def in_full(received: Iterable[Received]) -> list[RemotingCommand]:
    """All of them decoded, as where nothing is recognised."""
    return [cast("RemotingCommand", request) for request in received]


def feed(data: bytes, cuts: Iterable[int] = (), connection: RemotingConnection | None = None) -> list[RemotingCommand]:
    """Everything that comes out when data arrives cut at these places."""
    connection = RemotingConnection() if connection is None else connection
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    out: list[RemotingCommand] = []
    for start, end in itertools.pairwise(edges):
        out += in_full(connection.receive_data(data[start:end]))
        if connection.error is not None:
            raise connection.error
    return out


ROUTE = RemotingCommand(105, {"topic": "orders"}, opaque=43)
BINARY_ROUTE = RemotingCommand(105, {"topic": "orders"}, opaque=-43, serialize_type=SerializeType.ROCKETMQ)
REGISTER = RemotingCommand(103, {"brokerName": "a"}, b"body" * 50, opaque=44)
EXCHANGE = [ROUTE, REGISTER, ROUTE, BINARY_ROUTE, RemotingCommand(206), BINARY_ROUTE, ROUTE]
EXCHANGE_BYTES = b"".join(map(encode_frame, EXCHANGE))


def test_a_frame_in_one_piece() -> None:
    assert feed(encode_frame(REGISTER)) == [REGISTER]


def test_a_frame_a_byte_at_a_time_comes_with_its_last_byte() -> None:
    connection = RemotingConnection()
    data = encode_frame(REGISTER)
    for byte in data[:-1]:
        assert connection.receive_data(bytes([byte])) == []
    assert connection.buffered_bytes == len(data) - 1
    assert connection.receive_data(data[-1:]) == [REGISTER]
    assert connection.buffered_bytes == 0


def test_trailing_bytes_are_kept_for_the_next_frame() -> None:
    connection = RemotingConnection()
    data = encode_frame(REGISTER)
    assert connection.receive_data(data + data[:5]) == [REGISTER]
    assert connection.buffered_bytes == 5
    assert connection.receive_data(data[5:]) == [REGISTER]


def test_two_hundred_pipelined_frames_come_at_once_and_in_order() -> None:
    requests = [RemotingCommand(105, {"topic": f"topic-{number % 7}"}, opaque=number) for number in range(200)]
    assert feed(b"".join(map(encode_frame, requests))) == requests


@pytest.mark.parametrize("preamble", [b"", V1, V2, V2_IPV6, V2_LOCAL, V2_UNIX, b"PROXY UNKNOWN whatever\r\n"])
@given(st.lists(st.integers(1, 900), max_size=20))
@example(range(1, 900))
def test_any_chunking_gives_the_same_frames(preamble: bytes, cuts: Iterable[int]) -> None:
    assert feed(preamble + EXCHANGE_BYTES, cuts) == EXCHANGE


@given(st.binary(max_size=100), st.lists(st.integers(1, 100), max_size=5))
@example(b"\x00\x00\x00\x04\x00\x00\x00\x00", [])
@example(b"PROXY ", [])
@example(V2_START + b"\x21\x11\x00\x01x", [])
def test_garbage_raises_only_protocol_error(garbage: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(ProtocolError):
        feed(garbage, cuts)


@given(st.data())
def test_a_damaged_frame_raises_only_protocol_error(data: st.DataObject) -> None:
    damaged = bytearray(EXCHANGE_BYTES)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        feed(bytes(damaged))


def test_what_precedes_an_error_is_returned_and_nothing_after_it() -> None:
    connection = RemotingConnection()
    assert connection.receive_data(encode_frame(REGISTER) + b"\0\0\0\0" + encode_frame(REGISTER)) == [REGISTER]
    assert connection.error is not None
    with pytest.raises(ProtocolError, match="below 4"):
        connection.receive_data(encode_frame(REGISTER))


def test_responses_are_dropped() -> None:
    connection = RemotingConnection()
    answer = encode_frame(RemotingCommand(0, flag=FLAG_RESPONSE))
    route_answer = encode_frame(RemotingCommand(105, {"topic": "t"}, flag=FLAG_RESPONSE))
    assert connection.receive_data(answer + encode_frame(REGISTER) + route_answer) == [REGISTER]


def test_oneway_requests_come_in_full() -> None:
    oneway = RemotingCommand(105, {"topic": "t"}, flag=FLAG_ONEWAY)
    assert RemotingConnection().receive_data(encode_frame(oneway)) == [oneway]


# --- bounds ---


@pytest.mark.parametrize(
    "start",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03",
        b"\xff\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        struct.pack(">i", 1 << 24 | 1),
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"SSH-2.0-",
    ],
)
def test_a_bad_length_is_refused_with_its_fourth_byte(start: bytes) -> None:
    connection = RemotingConnection(frame_limit_bytes=1 << 24)
    assert connection.receive_data(start[:3]) == []
    with pytest.raises(ProtocolError):
        connection.receive_data(start[3:4])


@pytest.mark.parametrize("mark", [b"\x00\x00\x00\x00", b"\x02\x00\x00\x10", b"\xff\x00\x00\x10", b"\x00\x00\x00\x5d"])
def test_a_bad_mark_is_refused_with_its_fourth_byte(mark: bytes) -> None:
    connection = RemotingConnection()
    assert connection.receive_data(b"\x00\x00\x00\x60" + mark[:3]) == []
    with pytest.raises(ProtocolError, match="header"):
        connection.receive_data(mark[3:])


def test_the_limit_counts_the_whole_frame() -> None:
    data = encode_frame(REGISTER)
    assert feed(data, connection=RemotingConnection(len(data))) == [REGISTER]
    with pytest.raises(ProtocolError, match="over the limit"):
        feed(data, connection=RemotingConnection(len(data) - 1))
    route = encode_frame(ROUTE)
    requests = RouteRequests(lambda query: EncodedReply(response()))
    RemotingConnection(inline=requests).receive_data(route)
    assert len(requests) == 1
    with pytest.raises(ProtocolError, match="over the limit"):
        feed(route, connection=RemotingConnection(len(route) - 1, requests))


def test_an_announced_frame_takes_no_memory_until_it_arrives() -> None:
    connections = [RemotingConnection() for _ in range(20)]
    announced = struct.pack(">iI", 60_000_000, 100) + b'{"code":'
    tracemalloc.start()
    try:
        for connection in connections:
            connection.receive_data(announced)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert {connection.buffered_bytes for connection in connections} == {len(announced)}


def test_a_large_frame_in_pieces_takes_its_own_size_twice_at_most() -> None:
    body = bytes(16_000_000)
    data = encode_frame(RemotingCommand(103, {}, body))
    connection = RemotingConnection()
    tracemalloc.start()
    try:
        received: list[Received] = []
        for at in range(0, len(data), 65_536):
            received += connection.receive_data(data[at : at + 65_536])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert in_full(received)[0].body == body
    assert peak < 2.3 * len(body)


def test_a_byte_at_a_time_costs_no_more_than_the_bytes() -> None:
    # A million bytes copied for each byte that arrives would take minutes.
    data = encode_frame(RemotingCommand(103, {}, bytes(1_000_000)))
    connection = RemotingConnection()
    start = time.monotonic()
    for at in range(len(data) - 1):
        connection.receive_data(data[at : at + 1])
    assert len(connection.receive_data(data[-1:])) == 1
    assert time.monotonic() - start < 20


# --- headers ---


def long_headers() -> dict[str, bytes]:
    """Frames with useless headers: by length, by fields, as either type."""
    many = {f"n{number}": "1" for number in range(20_000)}
    value = {"namespace": "n", "key": "k", "value": "v" * HEADER_LIMIT_BYTES}
    numbers = b'{"code":100,"extFields":{' + b",".join(b'"n":1' for _ in range(50_000)) + b"}}"
    return {
        "one long field": encode_frame(RemotingCommand(105, {"topic": "t" * HEADER_LIMIT_BYTES})),
        "many fields": encode_frame(RemotingCommand(105, many)),
        "many fields, in binary": encode_frame(RemotingCommand(105, many), SerializeType.ROCKETMQ),
        "many fields of PUT_KV_CONFIG": encode_frame(RemotingCommand(100, {**value, **many})),
        "many fields of PUT_KV_CONFIG, in binary": encode_frame(
            RemotingCommand(100, {**value, **many}), SerializeType.ROCKETMQ
        ),
        "numbers": struct.pack(">iI", 4 + len(numbers), len(numbers)) + numbers,
        "a remark": encode_frame(RemotingCommand(206, remark="r" * HEADER_LIMIT_BYTES)),
        "a code inside a value": encode_frame(RemotingCommand(103, {"a": '"code":100' + "a" * HEADER_LIMIT_BYTES})),
    }


@pytest.mark.parametrize("name", long_headers())
def test_a_long_header_is_refused(name: str) -> None:
    data = long_headers()[name]
    for body in (b"", bytes(PLAIN_FRAME_LIMIT_BYTES)):
        length = struct.unpack(">i", data[:4])[0] + len(body)
        with pytest.raises(ProtocolError, match=r"over the limit|extFields|JSON header"):
            feed(struct.pack(">i", length) + data[4:] + body)


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("first", ["code", "extFields"])
def test_a_kv_value_may_make_a_header_long(kind: SerializeType, first: str) -> None:
    command = RemotingCommand(100, {"namespace": "n", "key": "k", "value": '\\"{é}\n' * 40_000}, serialize_type=kind)
    data = encode_frame(command, kind)
    if kind is SerializeType.JSON:
        fields = json.loads(data[8:])
        header = json.dumps({first: fields.pop(first), **fields}).encode()
        data = struct.pack(">iI", 4 + len(header), len(header)) + header
    assert feed(data, range(0, len(data), 65_536)) == [command]


def test_a_header_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces the body of a large registration comes in."""
    decoded = []

    def counting(*args: Any) -> RemotingCommand:
        decoded.append(args)
        return decode_header(*args)

    monkeypatch.setattr("remoting.codec.connection.decode_header", counting)
    commands = [RemotingCommand(103, {"brokerName": "a"}, bytes(PLAIN_FRAME_LIMIT_BYTES)) for _ in range(2)]
    data = b"".join(map(encode_frame, commands))
    assert feed(data, range(0, len(data), 65_536)) == commands
    assert len(decoded) == 2


def test_the_fields_of_a_large_registration_are_bounded_before_its_body_comes() -> None:
    fields = {f"n{number}": "" for number in range(1_000)}
    data = encode_frame(RemotingCommand(103, fields, bytes(PLAIN_FRAME_LIMIT_BYTES)))
    with pytest.raises(ProtocolError, match="1000 header fields"):
        RemotingConnection().receive_data(data[:100_000])


# --- PROXY protocol ---


@pytest.mark.parametrize(
    "preamble",
    [b"", V1, b"PROXY TCP6 2001:db8::1 ::1 80 9876\r\n", b"PROXY UNKNOWN\r\n", V2, V2_IPV6, V2_LOCAL, V2_UNIX],
)
def test_a_preamble_is_skipped(preamble: bytes) -> None:
    assert in_full(RemotingConnection().receive_data(preamble + encode_frame(REGISTER))) == [REGISTER]


@pytest.mark.parametrize(
    "preamble",
    [
        b"PROXY TCP4 1.2.3.4\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 x\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        b"PROXY TCP4 1.2.3.444 5.6.7.8 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 200,
        V2_START + b"\x11\x11\x00\x0c" + b"\0" * 12,
        V2_START + b"\x22\x11\x00\x0c" + b"\0" * 12,
        V2_START + b"\x21\x11\x00\x0b" + b"\0" * 11,
    ],
)
def test_a_broken_preamble_is_refused(preamble: bytes) -> None:
    with pytest.raises(ProtocolError, match="PROXY"):
        feed(preamble)


def test_a_preamble_comes_first_or_not_at_all() -> None:
    with pytest.raises(ProtocolError):
        feed(encode_frame(REGISTER) + V1 + encode_frame(REGISTER))
    with pytest.raises(ProtocolError):
        feed(V1 + V1)


@pytest.mark.parametrize("piece", [64 * 1024, 1 << 30])
@pytest.mark.parametrize("kind", SerializeType)
def test_only_a_registration_may_be_large(kind: SerializeType, piece: int) -> None:
    """It is the very first frame of a stock broker's connection. Others are refused before they have come."""
    body = bytes(PLAIN_FRAME_LIMIT_BYTES)
    registration = encode_frame(RemotingCommand(103, {"brokerName": "a"}, body), kind)
    connection = RemotingConnection()
    pieces = (registration[at : at + piece] for at in range(0, len(registration), piece))
    found = [command for data in pieces for command in connection.receive_data(data)]
    assert [command.body for command in found if isinstance(command, RemotingCommand)] == [body]
    for code, field in ((100, "x"), (318, "x"), (103, "x" * HEADER_LIMIT_BYTES)):
        other = encode_frame(RemotingCommand(code, {"brokerName": field}, body), kind)
        with pytest.raises(ProtocolError, match="REGISTER_BROKER|header of"):
            RemotingConnection().receive_data(other[:piece])
    small = encode_frame(RemotingCommand(100, {"value": "x" * (PLAIN_FRAME_LIMIT_BYTES - 1024)}), kind)
    assert len(RemotingConnection().receive_data(small)) == 1
    answer = encode_frame(RemotingCommand(0, None, body, flag=FLAG_RESPONSE))
    assert len(RemotingConnection(keep_responses=True).receive_data(answer)) == 1

# SPDX-License-Identifier: Apache-2.0
"""The oracle's own tools: the canonical form hides what is unspecified and nothing else; frames mean what they say."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from dev.model import codes
from dev.model.client import (
    BINARY_HEADER,
    JSON_HEADER,
    ConnectionClosed,
    RemotingClient,
    decode_frame,
    encode_frame,
)
from dev.model.wire import Request, Response, canonical, parse_fastjson

ROUTE = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})


def form(body: str, code: int = 0, ext: dict[str, str] | None = None, request: Request = ROUTE) -> object:
    return canonical(request, Response(code, ext, body.encode(), "remark"))


def test_order_is_hidden() -> None:
    one = '{"brokerDatas":[{"brokerName":"a"},{"brokerName":"b"}],"queueDatas":[{"brokerName":"b"},{"brokerName":"a"}]}'
    two = '{"queueDatas":[{"brokerName":"a"},{"brokerName":"b"}],"brokerDatas":[{"brokerName":"b"},{"brokerName":"a"}]}'
    assert form(one) == form(two)
    assert form('{"topicList":["b","a"]}') == form('{"topicList":["a","b"]}')
    assert form('{"clusterAddrTable":{"c":["b","a"]}}') == form('{"clusterAddrTable":{"c":["a","b"]}}')


def test_real_lists_keep_their_order() -> None:
    assert form('{"filterServerTable":{"x":["b","a"]}}') != form('{"filterServerTable":{"x":["a","b"]}}')


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ('{"brokerAddrs":{0:"x:1"}}', "numeric"),
        ('{"brokerAddrs":{"0":"x:1"}}', "quoted"),
        ('{"brokerAddrs":{"0":"x:1"},"currIdMap":{0:1}}', "mixed"),
        ('{"brokerAddrs":{},"remark":"{0:1}"}', None),
    ],
)
def test_dialect(body: str, dialect: str | None) -> None:
    assert canonical(ROUTE, Response(0, None, body.encode()))["dialect"] == dialect


def test_dialects_differ_though_they_parse_alike() -> None:
    assert parse_fastjson('{"currIdMap":{0:1,-1:2}}')[0] == parse_fastjson('{"currIdMap":{"0":1,"-1":2}}')[0]
    assert form('{"currIdMap":{0:1}}') != form('{"currIdMap":{"0":1}}')


def test_presence_counts_and_remarks_do_not() -> None:
    assert canonical(ROUTE, Response(0, None, b"")) != canonical(ROUTE, Response(0, {}, b""))
    assert canonical(ROUTE, Response(0, None, b"{}")) != canonical(ROUTE, Response(0, None, b""))
    assert canonical(ROUTE, Response(1, None, b"", "a")) == canonical(ROUTE, Response(1, None, b"", "b"))


@pytest.mark.parametrize("header_type", [JSON_HEADER, BINARY_HEADER])
def test_frames(header_type: int) -> None:
    frame = encode_frame(
        103, {"brokerName": "é"}, b"body", version=513, opaque=-7, flag=3, remark="r☃", header_type=header_type
    )
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    decoded = decode_frame(frame[4:])
    assert (decoded.header_type, decoded.opaque, decoded.is_response) == (header_type, -7, True)
    assert decoded.response() == Response(103, {"brokerName": "é"}, b"body", "r☃")
    assert decoded.request() == Request(103, {"brokerName": "é"}, b"body", 513, "JAVA", oneway=True)


def test_client_matches_answers_and_sees_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                stream = connection.makefile("rb")
                head = stream.read(4)
                opaque = decode_frame(stream.read(struct.unpack(">i", head)[0])).opaque
                answer = encode_frame(0, {}, opaque=opaque, flag=1)
                connection.sendall(encode_frame(905, {"minBrokerId": "1"}, flag=2) + answer[:5])
                connection.sendall(answer[5:])
                stream.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with RemotingClient("127.0.0.1", listener.getsockname()[1]) as client:
            assert client.call(Request(106)) == Response(0, {}, b"", None)
            assert [frame.request().code for frame in client.unsolicited] == [905]
            assert client.closed_by_peer()
            with pytest.raises(ConnectionClosed):
                client.receive_frame()
        thread.join()

# SPDX-License-Identifier: Apache-2.0
"""Replies: their opaque, their header type, and templates that give the same bytes as encoding each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.frame import FLAG_ONEWAY, RemotingCommand, decode_frame, encode_frame
from remoting.reply import ReplyHeader, ReplyTemplate, encode_reply, reply_type, response
from schemas.codes import MAX_INT, MIN_INT, SerializeType

JSON, ROCKETMQ = SerializeType.JSON, SerializeType.ROCKETMQ


@pytest.mark.parametrize(
    ("setting", "request_type", "expected"),
    [
        (ReplyHeader.JSON, JSON, JSON),
        (ReplyHeader.JSON, ROCKETMQ, JSON),
        (ReplyHeader.ROCKETMQ, JSON, ROCKETMQ),
        (ReplyHeader.ROCKETMQ, ROCKETMQ, ROCKETMQ),
        (ReplyHeader.ECHO, JSON, JSON),
        (ReplyHeader.ECHO, ROCKETMQ, ROCKETMQ),
    ],
)
def test_the_header_type_of_a_reply(setting: ReplyHeader, request_type: SerializeType, expected: SerializeType) -> None:
    assert reply_type(request_type, setting) is expected
    request = RemotingCommand(106, opaque=9, serialize_type=request_type)
    data = encode_reply(request, response(body=b"b"), setting)
    assert data[4] == expected
    found = decode_frame(data)
    assert (found.opaque, found.is_response, found.body) == (9, True, b"b")


def test_a_oneway_request_is_not_answered() -> None:
    assert encode_reply(RemotingCommand(904, flag=FLAG_ONEWAY), response()) == b""


def test_a_reply_type_without_header_class_has_no_ext_fields() -> None:
    assert b"extFields" not in encode_reply(RemotingCommand(100), response())
    assert b'"extFields":{}' in encode_reply(RemotingCommand(103), response(ext_fields={}))


@given(
    st.integers(MIN_INT, MAX_INT),
    st.none() | st.text(max_size=5),
    st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.binary(max_size=20),
)
@pytest.mark.parametrize("kind", SerializeType)
def test_a_template_gives_what_encoding_gives(
    kind: SerializeType, opaque: int, remark: str | None, ext_fields: dict[str, str] | None, body: bytes
) -> None:
    template = ReplyTemplate(response(17, remark, ext_fields, body))
    for number in (opaque, 0, opaque):
        expected = response(17, remark, ext_fields, body)
        expected.opaque = number
        assert template.encode(b"%d" % number, kind) == encode_frame(expected, kind)
        assert abs(template.size - len(encode_frame(expected, JSON))) < 16


def test_a_template_does_not_copy_its_body() -> None:
    body = b"x" * 1000
    assert ReplyTemplate(response(body=body)).body is body

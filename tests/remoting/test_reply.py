# SPDX-License-Identifier: Apache-2.0
"""Replies: their opaque, their header type, and encoded ones that are the same bytes as encoding each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.support.frames import decode_frame
from remoting.codec.frame import FLAG_ONEWAY, RemotingCommand, encode_frame
from remoting.codec.reply import EncodedReply, encode_reply, response
from schemas.codes import MAX_INT, MIN_INT, SerializeType


@pytest.mark.parametrize("request_type", SerializeType)
def test_a_reply_has_a_json_header_and_the_opaque_of_its_request(request_type: SerializeType) -> None:
    data = b"".join(encode_reply(RemotingCommand(106, opaque=9, serialize_type=request_type), response(body=b"b")))
    assert data[4] == SerializeType.JSON
    found = decode_frame(data)
    assert (found.opaque, found.is_response, found.body) == (9, True, b"b")


def test_a_oneway_request_is_not_answered() -> None:
    assert encode_reply(RemotingCommand(904, flag=FLAG_ONEWAY), response()) == (b"", b"")


def test_a_reply_type_without_header_class_has_no_ext_fields() -> None:
    assert b"extFields" not in encode_reply(RemotingCommand(100), response())[0]
    assert b'"extFields":{}' in encode_reply(RemotingCommand(103), response(ext_fields={}))[0]


@given(
    st.integers(MIN_INT, MAX_INT),
    st.none() | st.text(max_size=5),
    st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.binary(max_size=20),
)
def test_an_encoded_reply_is_what_encoding_gives(
    opaque: int, remark: str | None, ext_fields: dict[str, str] | None, body: bytes
) -> None:
    reply = EncodedReply(response(17, remark, ext_fields, body))
    for number in (opaque, 0, opaque):
        expected = response(17, remark, ext_fields, body)
        expected.opaque = number
        assert reply.encode(b"%d" % number) == encode_frame(expected)
        assert abs(reply.size - len(encode_frame(expected))) < 16


def test_an_encoded_reply_does_not_copy_its_body() -> None:
    body = b"x" * 1000
    assert EncodedReply(response(body=body)).pieces(b"1")[-1] is body

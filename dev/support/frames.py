# SPDX-License-Identifier: Apache-2.0
"""Whole frames of the remoting protocol. The product decodes them piece by piece (`remoting.codec.connection`)."""

from __future__ import annotations

import struct

from remoting.codec.frame import (
    DEFAULT_FRAME_LIMIT_BYTES,
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    RemotingCommand,
    check_length,
    check_mark,
    decode_header,
)
from schemas.errors import ProtocolError


def decode_frame(frame: bytes, frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES) -> RemotingCommand:
    """Decode one whole frame, with its length field.

    Raises:
        ProtocolError: The bytes are not exactly one frame.
    """
    if len(frame) < 8:
        raise ProtocolError(f"{len(frame)} bytes are not a frame: it has at least 8")
    length, mark = struct.unpack_from(">iI", frame)
    check_length(length, frame_limit_bytes)
    check_mark(mark, length)
    if len(frame) != LENGTH_BYTES + length:
        raise ProtocolError(f"{len(frame)} bytes are not exactly one frame of length {length}")
    end = 8 + (mark & MAX_HEADER_BYTES)
    return decode_header(mark >> 24, frame[8:end], frame[end:])

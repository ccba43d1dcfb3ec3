# SPDX-License-Identifier: Apache-2.0
r"""The preamble in which a load balancer names its client: PROXY protocol, versions 1 and 2. No I/O.

The preamble is checked and skipped. Any peer can send any address in it, so the address is not used.

Version 1 is a line, version 2 is binary::

    PROXY TCP4 192.0.2.7 10.0.0.1 51234 9876\r\n
    \r\n\r\n\0\r\nQUIT\n | uint8 0x20 local or 0x21 proxied | uint8 family and transport | uint16 n | n bytes

Sources: NettyRemotingServer.HandshakeHandler and HAProxyMessageDecoder (netty), which accept both;
https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from schemas.errors import ProtocolError

_V1_START: Final = b"PROXY "
_V1_MAX_BYTES: Final = 107
_V2_START: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD: Final = struct.Struct(">12sBBH")
_V2_BYTES: Final = {1: 12, 2: 36}
"""Size of two addresses and two ports, in bytes, by address family."""


def preamble_bytes(data: bytes) -> int | None:
    """Return the length of the preamble at the start of a connection, in bytes.

    Without a preamble the length is 0. While more bytes are needed to decide, the function returns None.

    Args:
        data: All bytes that have arrived, at least one.

    Raises:
        ProtocolError: The preamble cannot be read.
    """
    try:
        if data.startswith(_V2_START):
            return _version_2(data)
        if data.startswith(_V1_START):
            return _version_1(data)
    except ValueError as error:
        text = f"cannot read the PROXY preamble: {error}. Check the load balancer that sends it."
        raise ProtocolError(text) from error
    return None if _V1_START.startswith(data) or _V2_START.startswith(data) else 0


def _version_1(data: bytes) -> int | None:
    line, end, _ = data[:_V1_MAX_BYTES].partition(b"\r\n")
    if not end:
        if len(data) >= _V1_MAX_BYTES:
            raise ValueError(f"it does not end within {_V1_MAX_BYTES} bytes")
        return None
    words = line.decode("ascii", "replace").split(" ")
    size = len(line) + 2
    if words[1] == "UNKNOWN":
        return size
    if len(words) != 6 or words[1] not in {"TCP4", "TCP6"}:
        raise ValueError("version 1 has six words, the second of them TCP4, TCP6 or UNKNOWN")
    for address in words[2:4]:
        ipaddress.ip_address(address)
    ports = [int(word) for word in words[4:] if word.isdecimal() and len(word) < 6]
    if len(ports) != 2 or max(ports) > 65535:
        raise ValueError("a port is not a number from 0 to 65535")
    return size


def _version_2(data: bytes) -> int | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, command, family, length = _V2_HEAD.unpack_from(data)
    if command not in {0x20, 0x21}:
        raise ValueError(f"version and command are {command:#x}, not 0x20 or 0x21")
    size: int = _V2_HEAD.size + length
    if len(data) < size:
        return None
    if command == 0x21 and length < _V2_BYTES.get(family >> 4, 0):
        raise ValueError(f"{length} bytes are too few for its addresses")
    return size

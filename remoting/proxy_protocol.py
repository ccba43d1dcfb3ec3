# SPDX-License-Identifier: Apache-2.0
r"""The preamble by which a load balancer names the client behind it: PROXY protocol, versions 1 and 2. No I/O.

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
_V2_ADDRESS_BYTES: Final = {1: 4, 2: 16}


class Preamble:
    """What was found.

    Attributes:
        size: Bytes that it takes up; 0 when there is none; None when more bytes are needed to tell.
        peer: host:port of the client behind the proxy, None when the preamble does not say.
    """

    __slots__ = ("peer", "size")

    def __init__(self, size: int | None, peer: str | None = None) -> None:
        """See the attributes."""
        self.size = size
        self.peer = peer


def find_preamble(data: bytes) -> Preamble:
    """Look for a preamble at the start of a connection.

    Args:
        data: Everything that has arrived, at least one byte.

    Raises:
        ProtocolError: One that cannot be read.
    """
    if data.startswith(_V2_START):
        return _version_2(data)
    if data.startswith(_V1_START):
        return _version_1(data)
    if _V1_START.startswith(data) or _V2_START.startswith(data):
        return Preamble(None)
    return Preamble(0)


def _version_1(data: bytes) -> Preamble:
    line, end, _ = data[:_V1_MAX_BYTES].partition(b"\r\n")
    if not end:
        if len(data) >= _V1_MAX_BYTES:
            raise ProtocolError("PROXY v1 preamble without end")
        return Preamble(None)
    words = line.decode("ascii", "replace").split(" ")
    size = len(line) + 2
    if words[1] == "UNKNOWN":
        return Preamble(size)
    if len(words) != 6 or words[1] not in {"TCP4", "TCP6"}:
        raise ProtocolError("PROXY v1 preamble is malformed")
    try:
        address = ipaddress.ip_address(words[2])
        ipaddress.ip_address(words[3])
        ports = [int(word) for word in words[4:] if word.isdecimal() and len(word) < 6]
    except ValueError as error:
        raise ProtocolError(f"PROXY v1 preamble: {error}") from error
    if len(ports) != 2 or max(ports) > 65535:
        raise ProtocolError("PROXY v1 preamble with a bad port")
    return Preamble(size, _host_and_port(address, ports[0]))


def _version_2(data: bytes) -> Preamble:
    if len(data) < _V2_HEAD.size:
        return Preamble(None)
    _, command, family, length = _V2_HEAD.unpack_from(data)
    if command not in {0x20, 0x21}:
        raise ProtocolError(f"PROXY v2 preamble with version and command {command:#x}")
    size = _V2_HEAD.size + length
    if len(data) < size:
        return Preamble(None)
    address_bytes = _V2_ADDRESS_BYTES.get(family >> 4)
    if command == 0x20 or address_bytes is None:
        return Preamble(size)
    if length < 2 * address_bytes + 4:
        raise ProtocolError("PROXY v2 preamble is cut short")
    at = _V2_HEAD.size
    address = ipaddress.ip_address(data[at : at + address_bytes])
    (port,) = struct.unpack_from(">H", data, at + 2 * address_bytes)
    return Preamble(size, _host_and_port(address, port))


def _host_and_port(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"

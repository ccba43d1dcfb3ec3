# SPDX-License-Identifier: Apache-2.0
"""Steps of a generated history, which can be turned into requests, under any names.

A history is written in the words of one small universe ("cluster-a", "broker-b", "10.0.0.3:10911"). `renamed` maps
every such word to a fresh one, so that one long-lived server can serve many histories without one disturbing the next.
Renaming has to come before compression and checksums, so a step holds the parts of a body and builds it on demand.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from dev.model.codes import REGISTER_BROKER
from dev.model.wire import Request

CLUSTERS = ("cluster-a", "cluster-b", "cluster-c")
BROKERS = ("broker-a", "broker-b", "broker-c", "broker-d")
ADDRESSES = tuple(f"10.0.0.{host}:10911" for host in range(1, 7))
TOPICS = ("topic-a", "topic-b", "topic-c", "topic-d", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_broker-a")
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
NAMESPACES = (ORDER_NAMESPACE, "namespace-a")
NOWHERE = ("cluster-z", "broker-z", "topic-z", "namespace-z")  # asked for, never made

_WORDS = sorted({*CLUSTERS, *BROKERS, *TOPICS, *NAMESPACES[1:], *NOWHERE}, key=len, reverse=True)
_WORD = re.compile(r"10\.0\.0\.(\d+):|" + "|".join(map(re.escape, _WORDS)))


def renamed(text: str, example: int) -> str:
    """Every word of the universe, made unique to one example.

    Args:
        text: An extFields value or the JSON of a body.
        example: 0 leaves the text alone.
    """
    if example == 0:
        return text

    def fresh(match: re.Match[str]) -> str:
        if match.group(1):
            return f"10.{example >> 8 & 255}.{example & 255}.{match.group(1)}:"
        return f"{match.group(0)}-{example}"

    return _WORD.sub(fresh, text)


@dataclass(frozen=True)
class CompressedBody:
    """The parts of a deflated RegisterBrokerBody.

    Attributes:
        data_version: JSON.
        topic_lines: TopicConfig.encode lines.
        filter_servers: JSON.
        mappings: JSON of each mapping; None leaves out even their number, as peers before 5.0.0 do.
    """

    data_version: str
    topic_lines: tuple[str, ...]
    filter_servers: str
    mappings: tuple[str, ...] | None

    def encode(self, rename: Callable[[str], str]) -> bytes:
        """RegisterBrokerBody.encode(true)."""

        def block(text: str) -> bytes:
            raw = rename(text).encode()
            return struct.pack(">i", len(raw)) + raw

        data = block(self.data_version) + struct.pack(">i", len(self.topic_lines))
        data += b"".join(map(block, self.topic_lines)) + block(self.filter_servers)
        if self.mappings is not None:
            data += struct.pack(">i", len(self.mappings)) + b"".join(map(block, self.mappings))
        return zlib.compress(data, 9)


@dataclass(frozen=True)
class Send:
    """One request over one connection.

    Attributes:
        code: RequestCode.
        ext: extFields, before renaming.
        body: JSON or text, or the parts of a compressed body; "" for none.
        version: Version of the peer.
        channel: Name of the connection.
        crc: bodyCrc32 is added: "right", "wrong" or not at all (None).
        binary: Whether the request has the ROCKETMQ header.
    """

    code: int
    ext: dict[str, str] = field(default_factory=dict)
    body: str | CompressedBody = ""
    version: int = 513
    channel: str = "admin"
    crc: str | None = None
    binary: bool = False

    def request(self, example: int = 0) -> Request:
        """The request, with every name made unique to this example."""

        def rename(text: str) -> str:
            return renamed(text, example)

        body = self.body.encode(rename) if isinstance(self.body, CompressedBody) else rename(self.body).encode()
        ext = {key: rename(value) for key, value in self.ext.items()}
        if self.crc is not None:
            crc = zlib.crc32(body) & 0x7FFFFFFF
            ext["bodyCrc32"] = str(crc if self.crc == "right" else crc ^ 1)
        return Request(self.code, ext, body, self.version)

    @property
    def registers(self) -> bool:
        """Return whether this is a registration, which binds the connection."""
        return self.code == REGISTER_BROKER


@dataclass(frozen=True)
class Advance:
    """The clock moves on, and the scan for silent brokers runs."""

    ms: int


@dataclass(frozen=True)
class CloseChannel:
    """A connection is lost."""

    channel: str


Step = Send | Advance | CloseChannel

# SPDX-License-Identifier: Apache-2.0
"""What a broker says again and again is decoded and encoded once: heartbeats, and what remembering a request takes."""

from __future__ import annotations

from sys import getsizeof
from typing import Final, NamedTuple

import zstandard

from remoting.codec.frame import RemotingCommand
from runtime.bounded import BoundedCache
from schemas.events import BrokerHeartbeat, EventEncoder, routing_key

_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Some 20,000 connections. The one that was silent for longest is forgotten, and learnt again."""

_LARGEST_BYTES: Final = 20 * 1024
"""Of a request without its topics: one with thousands of topic queue mappings, or with odd fields, is not kept."""

_OBJECTS_BYTES: Final = 1_000
"""Of the event, its fields and the payload, beside what they say."""


class Encoded(NamedTuple):
    """An event, and how the log takes it."""

    event: BrokerHeartbeat
    key: str
    payload: bytes


class Heartbeats:
    """The last heartbeat of each connection: a broker sends the same one each second. Lives on one event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._kept: BoundedCache[str, tuple[dict[str, str] | None, Encoded]] = BoundedCache(_KEPT_BYTES)

    def find(self, connection_id: str, command: RemotingCommand) -> Encoded | None:
        """The event of this very request; None when the last one was another."""
        kept = self._kept.get(connection_id)
        return kept[1] if kept is not None and kept[0] == command.ext_fields else None

    def keep(self, connection_id: str, command: RemotingCommand, event: BrokerHeartbeat) -> Encoded:
        """Remember what a request meant, until its connection says something else."""
        encoded = Encoded(event, routing_key(event), self._encoder.encode(event))
        size = kept_bytes(command.ext_fields, encoded.payload)
        if size is None:
            self._kept.pop(connection_id)
        else:
            self._kept.put(connection_id, (command.ext_fields, encoded), size)
        return encoded

    def forget(self, connection_id: str) -> None:
        """The connection is gone."""
        self._kept.pop(connection_id)


def kept_bytes(fields: dict[str, str] | None, payload: bytes) -> int | None:
    """What it takes to remember a request and the event it became; None if that is too much.

    By real size: fields may be long, and a small payload may be a large event.

    Args:
        fields: Of its header.
        payload: The event as the log takes it.
    """
    said = sum(getsizeof(name) + getsizeof(text) for name, text in (fields or {}).items())
    said += zstandard.frame_content_size(payload[1:])
    return _OBJECTS_BYTES + len(payload) + 2 * said if said <= _LARGEST_BYTES else None

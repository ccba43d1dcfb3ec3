# SPDX-License-Identifier: Apache-2.0
"""Repeated requests of brokers: registrations and heartbeats are decoded and encoded once.

The last registration of each broker is cached. A connection has its last heartbeat (`Connection.heartbeat`). The state
machine decides if a registration still changes nothing (`nameserver.view.conversions.changes_nothing`).
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final, NamedTuple

import msgspec
import zstandard

from runtime.bounded import BoundedCache
from schemas.events import Actor, Channel, EventEncoder, RegisterBroker, routing_key

_REGISTRATIONS_BYTES: Final = 48 * 1024 * 1024
"""Size for some 20,000 brokers. The broker with the oldest registration is forgotten first, and cached again later."""

HEARTBEAT_BYTES: Final = 4_000
"""Maximum memory of the heartbeat that a connection keeps, in bytes. So 10,000 connections keep at most 40 MB."""

_LARGEST_BYTES: Final = 20 * 1024
"""Maximum size of a cached request without its topics. A request with thousands of mappings, or odd fields, is not
cached."""

_OBJECTS_BYTES: Final = 1_000
"""Size of the event, its fields and the payload as objects without their contents, in bytes."""

_Broker = tuple[str | None, str | None, str | None]
"""clusterName, brokerName, brokerAddr."""
Request = tuple[int, dict[str, str] | None, bytes]
"""Version and fields of the header, and SHA-256 of the body. No peer can make another body with the same digest."""


class Encoded(NamedTuple):
    """Event of a request, and its routing key and payload on the event log."""

    event: RegisterBroker
    key: str
    payload: bytes


class _Last(NamedTuple):
    """Last registration of a broker here. ``request`` and ``repeat`` are None if they are too large to keep."""

    digest: str
    request: Request | None = None
    repeat: Encoded | None = None


class RegistrationCache:
    """Cache of the registrations of one gateway's brokers. Used on its event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._last: BoundedCache[_Broker, _Last] = BoundedCache(_REGISTRATIONS_BYTES)

    def has_same_topics(self, event: RegisterBroker) -> bool:
        """Return whether the broker's last registration had the same topics."""
        last = self._last.get(_broker(event))
        return last is not None and last.digest == event.topic_config_digest

    def find(self, request: Request, actor: Actor, channel: Channel) -> Encoded | None:
        """Return the meaning of a request, if its broker's last one was the same, over any connection."""
        fields = request[1] or {}
        last = self._last.get((fields.get("clusterName"), fields.get("brokerName"), fields.get("brokerAddr")))
        if last is None or last.repeat is None or last.request != request:
            return None
        event = last.repeat.event
        if event.channel == channel and event.actor == actor:
            return last.repeat
        return self.keep(msgspec.structs.replace(event, actor=actor, channel=channel), request)

    def keep(self, event: RegisterBroker, request: Request | None = None) -> Encoded | None:
        """Remember a registration as its broker's last one.

        Args:
            event: The registration, with or without its topics.
            request: Request that means this event each time it comes. None: there is no such request.
        """
        broker, digest = _broker(event), event.topic_config_digest
        last, repeat, kept = _Last(digest), None, None
        if request is None and self.has_same_topics(event):
            return None
        if request is not None:
            event = msgspec.structs.replace(event, topic_config_table=None)
            repeat = Encoded(event, routing_key(event), self._encoder.encode(event))
            kept = kept_bytes(request[1], repeat.payload)
            if kept is not None:
                last = _Last(digest, request, repeat)
        self._last.put(broker, last, _size(broker, digest) + (kept or 0))
        return repeat


def _broker(event: RegisterBroker) -> _Broker:
    return event.cluster_name, event.broker_name, event.broker_addr


def _size(broker: _Broker, digest: str) -> int:
    return sum(map(getsizeof, broker)) + len(digest)


def kept_bytes(fields: dict[str, str] | None, payload: bytes) -> int | None:
    """Return the memory for a cached request and its event, in bytes. None if that is too much.

    The real size counts, because fields may be long, and a small payload may be a large event.

    Args:
        fields: Fields of the request's header.
        payload: Event in the form of the event log.
    """
    said = sum(getsizeof(name) + getsizeof(text) for name, text in (fields or {}).items())
    said += zstandard.frame_content_size(payload[1:])
    return _OBJECTS_BYTES + len(payload) + 2 * said if said <= _LARGEST_BYTES else None

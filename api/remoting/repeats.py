"""What a broker says again and again is decoded and encoded once.

A broker sends its heartbeat each second and its whole registration every 30 s, mostly the same bytes. A registration is
known again over another connection, too: when a network has been away, all brokers come back at once. It is kept
without its topics; who wants to go on from it has to know these already (`Gateway.repeat`).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from api.remoting.frame import RemotingCommand
from schemas.events import Actor, AnyEvent, Channel, EventEncoder, RegisterBroker, routing_key

_KEPT: Final = 20_000
"""Brokers; more than that are forgotten altogether, and learnt again."""

_LARGEST_BYTES: Final = 16 * 1024
"""Of a payload without topics: one with thousands of topic queue mappings is not kept."""


class Repeat(NamedTuple):
    """An event that came before: itself, its routing key and its log payload."""

    event: Any
    key: str
    payload: bytes


class Heartbeats:
    """The last heartbeat of each connection. Lives on one event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._kept: dict[str, tuple[dict[str, str] | None, Repeat]] = {}

    def find(self, connection_id: str, command: RemotingCommand) -> Repeat | None:
        """The event of this very request; None when the last one was another."""
        kept = self._kept.get(connection_id)
        return kept[1] if kept is not None and kept[0] == command.ext_fields else None

    def keep(self, connection_id: str, command: RemotingCommand, event: AnyEvent) -> Repeat:
        """Remember what a request meant, until its connection says something else."""
        repeat = Repeat(event, routing_key(event), self._encoder.encode(event))
        self._kept[connection_id] = command.ext_fields, repeat
        return repeat

    def forget(self, connection_id: str) -> None:
        """The connection is gone."""
        self._kept.pop(connection_id, None)


class _Registration(NamedTuple):
    version: int
    ext_fields: dict[str, str] | None
    body_digest: bytes
    repeat: Repeat


class Registrations:
    """The last registration of each broker. Lives on one event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._kept: dict[tuple[str | None, ...], _Registration] = {}

    def find(self, command: RemotingCommand, body_digest: bytes, actor: Actor, channel: Channel) -> Repeat | None:
        """What this request means if its bytes are those of before, from whichever connection they come."""
        kept = self._kept.get(_broker(command))
        if kept is None or kept[:3] != (command.version, command.ext_fields, body_digest):
            return None
        event: RegisterBroker = kept.repeat.event
        if event.channel == channel and event.actor == actor:
            return kept.repeat
        return self._put(command, body_digest, msgspec.structs.replace(event, actor=actor, channel=channel))

    def keep(self, command: RemotingCommand, body_digest: bytes, event: RegisterBroker) -> None:
        """Remember what a request meant, until its broker says something else."""
        self._put(command, body_digest, msgspec.structs.replace(event, topic_config_table=None))

    def _put(self, command: RemotingCommand, body_digest: bytes, event: RegisterBroker) -> Repeat:
        repeat = Repeat(event, routing_key(event), self._encoder.encode(event))
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        if len(repeat.payload) <= _LARGEST_BYTES:
            self._kept[_broker(command)] = _Registration(command.version, command.ext_fields, body_digest, repeat)
        else:
            self._kept.pop(_broker(command), None)
        return repeat


def digest_of(body: bytes) -> bytes:
    """Fingerprint of a body. Nobody can make another body with the same one."""
    return hashlib.sha256(body).digest()  # processors have instructions for it: twice as fast as blake2b


def _broker(command: RemotingCommand) -> tuple[str | None, ...]:
    fields = command.ext_fields or {}
    return fields.get("clusterName"), fields.get("brokerName"), fields.get("brokerAddr")

"""What a broker says again and again is decoded and encoded once.

A broker sends its heartbeat each second and its whole registration every 30 s, mostly the same bytes over the same
connection. Kept is one event for each connection and request code, without the topics of a registration: who wants to
go on from it has to know these already (`Gateway.repeat`).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from api.remoting.frame import RemotingCommand
from schemas.events import AnyEvent, EventEncoder, RegisterBroker, routing_key


class Repeat(NamedTuple):
    """An event that came before: itself, its routing key and its log payload."""

    event: AnyEvent
    key: str
    payload: bytes


class _Request(NamedTuple):
    """What must be equal for two requests of one connection and code to mean the same event."""

    version: int
    ext_fields: dict[str, str] | None
    body_digest: bytes


class Repeats:
    """The last event of each connection and request code. Lives on one event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._kept: dict[str, dict[int, tuple[_Request, Repeat]]] = {}

    def find(self, connection_id: str, command: RemotingCommand) -> Repeat | None:
        """The event of this very request; None when the last one of its kind was another."""
        kept = self._kept.get(connection_id, {}).get(command.code)
        return kept[1] if kept is not None and kept[0] == _request(command) else None

    def keep(self, connection_id: str, command: RemotingCommand, event: AnyEvent) -> Repeat:
        """Remember what a request meant, until its connection says something else."""
        if isinstance(event, RegisterBroker):
            event = msgspec.structs.replace(event, topic_config_table=None)
        repeat = Repeat(event, routing_key(event), self._encoder.encode(event))
        self._kept.setdefault(connection_id, {})[command.code] = _request(command), repeat
        return repeat

    def forget(self, connection_id: str) -> None:
        """The connection is gone."""
        self._kept.pop(connection_id, None)


def _request(command: RemotingCommand) -> _Request:
    body_digest = hashlib.blake2b(command.body, digest_size=16).digest() if command.body else b""
    return _Request(command.version, command.ext_fields, body_digest)

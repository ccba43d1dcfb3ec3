# SPDX-License-Identifier: Apache-2.0
"""What each broker's last registration at this gateway was, and whether a view shows one: most say nothing new."""

from __future__ import annotations

from sys import getsizeof
from typing import Final, NamedTuple

import msgspec

from api.gateway.repeated_registrations import kept_bytes
from nameserver.view.snapshot import RouteView
from runtime.bounded import BoundedCache
from schemas.broker import DEFAULT_HEARTBEAT_TIMEOUT_MS, MASTER_ID
from schemas.events import Actor, Channel, EventEncoder, RegisterBroker, routing_key

_KEPT_BYTES: Final = 48 * 1024 * 1024
"""Some 20,000 brokers. The broker that has not registered for longest is forgotten, and learnt again."""

_Broker = tuple[str | None, str | None, str | None]
"""clusterName, brokerName, brokerAddr."""
Request = tuple[int, dict[str, str] | None, bytes]
"""Version and fields of the header, SHA-256 of the body: nobody can make another body with the same one."""


class CachedRegistration(NamedTuple):
    """What a request means: its event without topics, and that event as the log takes it."""

    event: RegisterBroker
    key: str
    payload: bytes


class _Last(NamedTuple):
    """A broker's last registration here; ``request`` and ``repeat`` are None where keeping them would take too much."""

    digest: str
    request: Request | None = None
    repeat: CachedRegistration | None = None


class RegistrationCache:
    """Of the brokers of one gateway. Lives on its event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._last: BoundedCache[_Broker, _Last] = BoundedCache(_KEPT_BYTES)

    def brought_these_topics(self, event: RegisterBroker) -> bool:
        """Whether the broker's last one brought the same topics; from now on this one is its last."""
        broker, digest = _broker(event), event.topic_config_digest
        last = self._last.get(broker)
        if last is not None and last.digest == digest:
            return True
        self._last.put(broker, _Last(digest), _size(broker, digest))
        return False

    def find(self, request: Request, actor: Actor, channel: Channel) -> CachedRegistration | None:
        """What a request means if its broker's last one was the same, from whichever connection."""
        fields = request[1] or {}
        last = self._last.get((fields.get("clusterName"), fields.get("brokerName"), fields.get("brokerAddr")))
        if last is None or last.repeat is None or last.request != request:
            return None
        event = last.repeat.event
        if event.channel == channel and event.actor == actor:
            return last.repeat
        return self.keep(request, msgspec.structs.replace(event, actor=actor, channel=channel))

    def keep(self, request: Request, event: RegisterBroker) -> CachedRegistration | None:
        """Remember what a request meant, until its broker says something else; it may have done so meanwhile."""
        broker, digest = _broker(event), event.topic_config_digest
        last = self._last.get(broker)
        if last is None or last.digest != digest:
            return None
        event = msgspec.structs.replace(event, topic_config_table=None)
        repeat = CachedRegistration(event, routing_key(event), self._encoder.encode(event))
        kept = kept_bytes(request[1], repeat.payload)
        last = _Last(digest) if kept is None else _Last(digest, request, repeat)
        self._last.put(broker, last, _size(broker, digest) + (kept or 0))
        return repeat


def shows(view: RouteView, event: RegisterBroker) -> bool:
    """Whether a view shows everything a registration says, so that its topics need not be written again.

    It may say no where the rules will call it unchanged, never yes where something would change.
    """
    live = view.live_row(event.broker_name, event.cluster_name, event.broker_addr)
    group = view.groups.get(event.broker_name)
    if live is None or group is None or event.delete_absent_topics:
        return False  # (the digest says that all registered topics are there, not that no others are)
    timeout_ms = (
        DEFAULT_HEARTBEAT_TIMEOUT_MS if event.heartbeat_timeout_millis is None else event.heartbeat_timeout_millis
    )
    row = group.row
    if not (
        live.data_version == event.data_version
        and live.heartbeat_timeout_millis == timeout_ms
        and live.ha_server_addr == event.ha_server_addr
        and row.broker_addrs.get(event.broker_id) == event.broker_addr
        and sum(addr == event.broker_addr for addr in row.broker_addrs.values()) == 1
        and row.zone_name == event.zone_name
        and row.enable_acting_master == bool(event.enable_acting_master)
        and event.broker_name in view.clusters.get(event.cluster_name, ())
    ):
        return False
    if event.filter_server_list is not None:
        known = view.filter_servers(event.cluster_name, event.broker_addr).get(event.broker_name, ())
        if tuple(event.filter_server_list) != known:
            return False
    brings_topics = event.broker_id == MASTER_ID or (
        event.enable_acting_master is not None and event.broker_id == min(row.broker_addrs)
    )
    return not brings_topics or live.topic_config_digest == event.topic_config_digest


def _broker(event: RegisterBroker) -> _Broker:
    return event.cluster_name, event.broker_name, event.broker_addr


def _size(broker: _Broker, digest: str) -> int:
    return sum(map(getsizeof, broker)) + len(digest)

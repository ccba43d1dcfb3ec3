"""What a view already says of an event: whether writing it down will change anything. Pure."""

from __future__ import annotations

from api.view.snapshot import RouteView
from schemas.broker import DEFAULT_HEARTBEAT_TIMEOUT_MS, MASTER_ID
from schemas.events import RegisterBroker


def reflected(view: RouteView, event: RegisterBroker) -> bool:
    """Whether a view already shows everything this registration says, so that the fold will call it unchanged.

    It may say no where the fold says unchanged (that costs a wait), never yes where something would change: the fold
    refuses a registration without topics when it needs them, and the next one brings them.
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

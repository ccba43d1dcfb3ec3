# SPDX-License-Identifier: Apache-2.0
"""A `RouteView` as a state of the state machine: where the live view begins, and what a registration would change.

A view is topic by topic, since that is how it is asked; the state machine is broker by broker. Topics are by far the
largest part and few events need them, so a group's are looked up in the view when a rule first asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from lake.commits import to_ms
from nameserver.state_machine.registration import register
from nameserver.state_machine.state import (
    OUTCOME_UNCHANGED,
    At,
    BrokerGroup,
    HeardChannel,
    LiveInfo,
    RegisteredMapping,
    RouteState,
    TopicRows,
    TopicTable,
)
from nameserver.view.model import LiveRow
from nameserver.view.snapshot import RouteView
from schemas.broker import QueueRow
from schemas.events import RegisterBroker

_channels = msgspec.json.Decoder(dict[str, HeardChannel])


def state_of(view: RouteView, topics: Callable[[str], TopicTable]) -> RouteState:
    """Return the state that the fold had at a view whose liveness is whole (livenessOffset is its logOffset).

    Args:
        view: View to begin at.
        topics: Returns the topics of a group, by its name.
    """
    clusters: dict[str, set[str]] = defaultdict(set)
    for cluster, names in view.clusters.items():
        for name in names:
            clusters[name].add(cluster)
    filters: dict[str, dict[tuple[str, str], tuple[str, ...]]] = defaultdict(dict)
    for place, by_name in view.filter_tables.items():
        for name, servers in by_name.items():
            filters[name][place] = servers
    mappings: dict[str, dict[tuple[str, str], RegisteredMapping]] = defaultdict(dict)
    for topic, found in view.mapping_tables.items():
        for (bname, name), entry in found.rows.items():
            mappings[name][topic, bname] = RegisteredMapping(entry.mapping, entry.registered_offset)
    with_topics = {name for rows in {id(rows): rows for rows in view.topics.values()}.values() for name in rows.brokers}
    live = view.live_names()
    groups: dict[str, BrokerGroup] = {}
    for name in {*view.groups, *clusters, *filters, *mappings, *with_topics, *live}:
        groups[name] = _group(
            view,
            name,
            clusters=frozenset(clusters.get(name, ())),
            live={key: live_info(one) for key, one in view.live_rows(name).items()},
            filter_servers=filters.get(name, {}),
            mappings=mappings.get(name, {}),
            topics=topics(name),
        )
    preserved = view.commit.preserve_time
    return RouteState(
        groups,
        view.kv,
        to_ms(view.event_time),
        preserved_ms=0 if preserved is None else to_ms(preserved),
        watermark_ms=to_ms(view.watermark),
    )


def changes_nothing(view: RouteView, event: RegisterBroker) -> bool:
    """Return whether the state machine calls a registration unchanged at a view.

    Args:
        view: View that the registration would follow.
        event: The registration, without its topics.
    """
    key = (event.cluster_name, event.broker_addr)
    live = view.live_row(event.broker_name, *key)
    if live is None:
        return False
    is_member = event.broker_name in view.clusters.get(event.cluster_name, ())
    servers = view.filter_servers(*key).get(event.broker_name)
    group = _group(  # its other addresses count only where this one changes something
        view,
        event.broker_name,
        clusters=frozenset((event.cluster_name,)) if is_member else frozenset(),
        live={key: live_info(live)},
        filter_servers={} if servers is None else {key: servers},
    )
    at = At(live.last_update_offset, live.last_update_timestamp)
    return register(group, event, at)[1] is OUTCOME_UNCHANGED


def _group(view: RouteView, name: str, **more: Any) -> BrokerGroup:  # noqa: ANN401 (fields of a group)
    known = view.groups.get(name)
    if known is None:
        return BrokerGroup(name, **more)
    row = known.row
    return BrokerGroup(
        name,
        known=True,
        cluster=row.cluster,
        broker_addrs=row.broker_addrs,
        zone_name=row.zone_name,
        enable_acting_master=row.enable_acting_master,
        **more,
    )


def topics_of(view: RouteView, broker_name: str) -> TopicRows:
    """topic -> row of one broker group: a walk through all topics, which looks into equal ones once."""
    rows: dict[int, QueueRow | None] = {}
    found: dict[str, QueueRow] = {}
    for topic, all_rows in view.topics.items():
        key = id(all_rows)
        if key in rows:
            row = rows[key]
        else:
            one = all_rows.find(broker_name)
            row = rows[key] = None if one is None else QueueRow._make(one)
        if row is not None:
            found[topic] = row
    return found


def live_info(row: LiveRow) -> LiveInfo:
    """A row of brokerLiveTable as the fold has it."""
    return LiveInfo(
        last_update_ms=row.last_update_timestamp,
        last_update_offset=row.last_update_offset,
        heartbeat_timeout_ms=row.heartbeat_timeout_millis,
        expire_ms=row.expire_timestamp,
        data_version=row.data_version,
        ha_server_addr=row.ha_server_addr,
        topic_config_digest=row.topic_config_digest,
        channels=_channels.decode(row.channels) if row.channels else {},
    )

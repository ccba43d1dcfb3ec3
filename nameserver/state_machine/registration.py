# SPDX-License-Identifier: Apache-2.0
"""REGISTER_BROKER: RouteInfoManager.registerBroker (5.5.0), step by step.

The numbers in the comments count its steps. A refusal does not undo the steps before it. RocketMQ does the same, and
brokers see it in GET_BROKER_CLUSTER_INFO.

Example of a history:

1. broker-a registers as id 0 with topics {T, U} at DataVersion v1. The group becomes known, and rows T and U are
   written.
2. The same registration comes 30 s later. Version and digest are equal, so only the time of the live row moves. The
   topics are not even loaded.
3. DELETE_TOPIC_IN_NAMESRV T removes the row and deletes the digest.
4. The next registration, still v1, finds T missing and writes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nameserver.state_machine.liveness import still_heard, without_digests
from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    At,
    BrokerGroup,
    BrokerKey,
    HeardChannel,
    LiveInfo,
    Outcome,
    RegisteredMapping,
    alive_until_ms,
    each_row,
    without,
)
from schemas.broker import DEFAULT_HEARTBEAT_TIMEOUT_MS, MASTER_ID, PERM_WRITE, DataVersion
from schemas.events import RegisterBroker
from schemas.outcomes import REJECTED, SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT, TOPICS_REQUIRED


class _Taken(NamedTuple):
    """A registration that was folded into its group, but for the live row and the filter servers.

    ``data_version`` is that of the live row. None: there is no other live row, and the group is whole.
    """

    group: BrokerGroup
    outcome: Outcome
    data_version: DataVersion | None = None
    digest: str | None = None


def register(group: BrokerGroup, event: RegisterBroker, at: At) -> tuple[BrokerGroup, Outcome]:
    """Apply one registration to its group.

    Returns:
        Next group, and outcome: applied, unchanged (only the time of the live row moved), or rejected. Reasons are
        SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT or TOPICS_REQUIRED (the gateway left the topics out, but they are
        needed).
    """
    registered, outcome, data_version, digest = _take(group, event, at)
    if data_version is None:
        return registered, outcome
    key: BrokerKey = (event.cluster_name, event.broker_addr)
    # 13: the live row.
    timeout_ms = _timeout_ms(event)
    live = LiveInfo(
        last_update_ms=at.now_ms,
        last_update_offset=at.offset,
        heartbeat_timeout_ms=timeout_ms,
        expire_ms=alive_until_ms(at.now_ms, timeout_ms),
        data_version=data_version,
        ha_server_addr=event.ha_server_addr,
        topic_config_digest=digest,
        channels=_bound_channels(group.live.get(key), event, timeout_ms, at),
    )
    filter_servers = _filter_servers(group, event, key)
    return replace(registered, live={**registered.live, key: live}, filter_servers=filter_servers), outcome


def is_unchanged(group: BrokerGroup, event: RegisterBroker, at: At) -> bool:
    """Return whether `register` calls a registration unchanged."""
    return _take(group, event, at).outcome is OUTCOME_UNCHANGED


def _take(group: BrokerGroup, event: RegisterBroker, at: At) -> _Taken:
    key: BrokerKey = (event.cluster_name, event.broker_addr)
    previous = group.live.get(key)

    first = not group.known
    joined = _joined(group, event)
    addrs = joined.broker_addrs

    # 6: another address holds the id, is alive in this cluster, and has a higher stateVersion.
    holder_addr = addrs.get(event.broker_id)
    if holder_addr is not None and holder_addr != event.broker_addr:
        holder = group.live.get((event.cluster_name, holder_addr))
        if holder is not None and holder.data_version.state_version > event.data_version.state_version:
            refused = replace(joined, live=without(group.live, key))
            return _Taken(refused, Outcome(REJECTED, STATE_VERSION_CONFLICT))

    # 7: an incremental update must not create a broker, because the rest of its topics would be missing.
    if event.broker_id not in addrs:
        if event.topic_config_table is None:
            return _Taken(group, Outcome(REJECTED, TOPICS_REQUIRED))
        if len(event.topic_config_table) == 1:
            return _Taken(joined, Outcome(REJECTED, SINGLE_TOPIC_REFUSED))

    # 8: take the id.
    first = first or not holder_addr
    registered = joined
    if holder_addr != event.broker_addr:
        addrs = {**addrs, event.broker_id: event.broker_addr}
        registered = replace(joined, broker_addrs=addrs)

    # 9-12: topics count only from the master, or from the smallest slave of a group without a master.
    is_prime_slave = (
        event.enable_acting_master is not None and event.broker_id != MASTER_ID and event.broker_id == min(addrs)
    )
    digest = previous.topic_config_digest if previous is not None else None
    data_version = event.data_version
    outcome = OUTCOME_APPLIED
    if event.broker_id == MASTER_ID or is_prime_slave:
        everything = first or previous is None or previous.data_version != event.data_version
        if everything or digest != event.topic_config_digest or event.delete_absent_topics:
            if event.topic_config_table is None:
                outcome = Outcome(REJECTED, TOPICS_REQUIRED)
                if previous is None:
                    return _Taken(group, outcome)
                # Keep the old version, so that the next registration, with topics, counts as changed.
                data_version = previous.data_version
                digest = None
            else:
                wipe = is_prime_slave and registered.enable_acting_master
                registered = _with_topics(registered, event, everything=everything, wipe_write_perm=wipe)
                digest = event.topic_config_digest
        if everything and event.topic_queue_mapping_info_map:
            registered = _with_mappings(registered, event, at)
    else:
        digest = None

    if (
        outcome is OUTCOME_APPLIED
        and registered is group
        and previous is not None
        and previous.data_version == data_version
        and previous.heartbeat_timeout_ms == _timeout_ms(event)
        and previous.ha_server_addr == event.ha_server_addr
        and _filter_servers(group, event, key) == group.filter_servers
    ):
        outcome = OUTCOME_UNCHANGED  # but for time, connection and digest of the live row
    return _Taken(registered, outcome, data_version, digest)


def _timeout_ms(event: RegisterBroker) -> int:
    timeout_ms = event.heartbeat_timeout_millis
    return DEFAULT_HEARTBEAT_TIMEOUT_MS if timeout_ms is None else timeout_ms


def _joined(group: BrokerGroup, event: RegisterBroker) -> BrokerGroup:
    """1-3: set cluster membership, BrokerData and the flags of the last writer. Return the group itself if unchanged.

    5: an address has only one id within a group (a slave may have become master, or the other way round).
    """
    acting_master = bool(event.enable_acting_master)
    others = [
        broker_id
        for broker_id, addr in group.broker_addrs.items()
        if addr == event.broker_addr and broker_id != event.broker_id
    ]
    if (
        group.known
        and not others
        and event.cluster_name in group.clusters
        and event.zone_name == group.zone_name
        and acting_master == group.enable_acting_master
    ):
        return group
    return replace(
        group,
        known=True,
        cluster=group.cluster if group.known else event.cluster_name,
        clusters=group.clusters | {event.cluster_name},
        zone_name=event.zone_name,
        enable_acting_master=acting_master,
        broker_addrs={key: addr for key, addr in group.broker_addrs.items() if key not in others},
    )


def _with_topics(group: BrokerGroup, event: RegisterBroker, *, everything: bool, wipe_write_perm: bool) -> BrokerGroup:
    """10-11: write the rows that count as changed: with ``everything`` all of them, otherwise the missing ones."""
    table = event.topic_config_table
    assert table is not None
    rows = group.topics.rows
    removed: set[str] = set()
    if event.delete_absent_topics and not event.topic_queue_mapping_info_map:
        removed = rows.keys() - table.keys()
    if wipe_write_perm:
        table = each_row(table, lambda row: row._replace(perm=row.perm & ~PERM_WRITE))
    if not rows:
        updates = table
    elif everything:
        present = rows.get
        updates = {topic: row for topic, row in table.items() if present(topic) != row}
    else:
        updates = {topic: row for topic, row in table.items() if topic not in rows}
    if not updates and not removed:
        return group
    return replace(without_digests(group) if removed else group, topics=group.topics.changed(updates, removed))


def _with_mappings(group: BrokerGroup, event: RegisterBroker, at: At) -> BrokerGroup:
    """12: merge static-topic mappings under their own bname. Absent ones stay.

    An equal mapping is written again, too. Another group may have mapped the same bname since, and the later offset
    counts.
    """
    merged = dict(group.mappings)
    for topic, mapping in event.topic_queue_mapping_info_map.items():
        merged[topic, mapping.bname or ""] = RegisteredMapping(mapping, at.offset)
    return replace(group, mappings=merged)


def _bound_channels(
    previous: LiveInfo | None, event: RegisterBroker, timeout_ms: int, at: At
) -> dict[str, HeardChannel]:
    """Bind the broker to this connection of this gateway. Other gateways that still hear it keep their connections.

    The others are forgotten here, so that the ids of gateways that ended do not add up. A heartbeat forgets none. It
    names no connection, so a gateway that hears the broker again after a silence could not bind it again.
    """
    channels = still_heard(previous.channels, timeout_ms, at.now_ms) if previous is not None else {}
    if event.channel is not None:
        channels[event.channel.gateway] = HeardChannel(event.channel.connection, at.now_ms)
    return channels


def _filter_servers(group: BrokerGroup, event: RegisterBroker, key: BrokerKey) -> Mapping[BrokerKey, tuple[str, ...]]:
    """14: null leaves the filter servers unchanged, and an empty list removes them."""
    if event.filter_server_list is None:
        return group.filter_servers
    if not event.filter_server_list:
        return without(group.filter_servers, key) if key in group.filter_servers else group.filter_servers
    return {**group.filter_servers, key: tuple(event.filter_server_list)}

# SPDX-License-Identifier: Apache-2.0
"""Liveness of brokers: heartbeats, unregistration, lost connections, expiry, and time without a listening gateway.

A broker's deadline is its ``expire_ms``: its last heartbeat plus its timeout. `expire` removes the members with a
passed deadline. It runs for every group at CLOCK, and for one group before the group's next event is applied. In
history the expiry is in the first millisecond after the deadline. So the history does not depend on which of the two
came first. An event in the millisecond of the deadline still finds the broker alive. In history it precedes the expiry.

While a PRESERVE is in force, no broker expires, and a lost connection removes no broker (`step`, ADR 14).

Deliberate differences from RocketMQ (docs/reference/compatibility.md):

- Liveness is per group and address.
- A stale live row with a superseded address expires, too.
- A lost connection unregisters a broker only if no other gateway still hears it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    At,
    BrokerGroup,
    BrokerKey,
    HeardChannel,
    Outcome,
    TopicTable,
    alive_until_ms,
    deadline_ms,
    each_row,
    without,
)
from schemas.broker import MASTER_ID, PERM_WRITE
from schemas.events import BrokerHeartbeat, ChannelClosed, UnregisterBroker


def heartbeat(group: BrokerGroup, event: BrokerHeartbeat, at: At) -> tuple[BrokerGroup, Outcome]:
    """904, 322: refresh the live row. An unknown broker changes nothing (updateBrokerInfoUpdateTimestamp)."""
    key = (event.cluster_name, event.broker_addr)
    live = group.live.get(key)
    if live is None:
        return group, OUTCOME_UNCHANGED
    channels = live.channels
    heard = channels.get(event.actor.gateway)
    if heard is not None:
        channels = {**channels, event.actor.gateway: HeardChannel(heard.connection, at.now_ms)}
    refreshed = msgspec.structs.replace(
        live,
        last_update_ms=at.now_ms,
        last_update_offset=at.offset,
        expire_ms=alive_until_ms(at.now_ms, live.heartbeat_timeout_ms),
        channels=channels,
    )
    return replace(group, live={**group.live, key: refreshed}), OUTCOME_UNCHANGED


def unregister(group: BrokerGroup, event: UnregisterBroker, at: At) -> tuple[BrokerGroup, Outcome]:
    """104: remove a broker. Without brokerId only its live row is removed, because RocketMQ fails half way there."""
    key = (event.cluster_name, event.broker_addr)
    half_done = event.broker_id is None and bool(group.broker_addrs)
    after = _without_live(group, key) if half_done else remove_broker(group, key)
    return after, OUTCOME_UNCHANGED if after is group else OUTCOME_APPLIED


def still_heard(channels: Mapping[str, HeardChannel], timeout_ms: int, now_ms: int) -> dict[str, HeardChannel]:
    """Return the connections over which a broker was heard within its own timeout. The others are ignored."""
    return {gateway: heard for gateway, heard in channels.items() if heard.heard_ms + timeout_ms >= now_ms}


def channel_closed(
    group: BrokerGroup, event: ChannelClosed, at: At, *, is_preserved: bool = False
) -> tuple[BrokerGroup, Outcome]:
    """Remove the broker of a lost connection, unless another gateway still hears it.

    A connection is ignored if a newer registration of the same broker has replaced it. Another gateway's connection
    counts if the broker was heard there within its own heartbeat timeout. With a grace, or while expiry pauses, the
    deadline is moved closer instead: to the end of the grace, or of half the broker's timeout if that is earlier.

    Source: BrokerHousekeepingService.onChannelClose.
    """
    key = (event.cluster_name, event.broker_addr)
    live = group.live.get(key)
    if live is None:
        return group, OUTCOME_UNCHANGED
    bound = live.channels.get(event.channel.gateway)
    if bound is None or bound.connection != event.channel.connection:
        return group, OUTCOME_UNCHANGED
    others = still_heard(live.channels, live.heartbeat_timeout_ms, at.now_ms)
    others.pop(event.channel.gateway, None)
    if others or not _holds_address(group, key):
        kept = msgspec.structs.replace(live, channels=others)
        return replace(group, live={**group.live, key: kept}), OUTCOME_UNCHANGED
    if is_preserved or event.grace_ms > 0:
        grace_ms = max(0, min(event.grace_ms, live.heartbeat_timeout_ms // 2))
        expire_ms = min(live.expire_ms, deadline_ms(at.now_ms, grace_ms))
        silent = msgspec.structs.replace(live, channels={}, expire_ms=expire_ms)
        return replace(group, live={**group.live, key: silent}), OUTCOME_UNCHANGED
    return remove_broker(group, key), OUTCOME_APPLIED


def expire(group: BrokerGroup, now_ms: int) -> list[tuple[BrokerGroup, At]]:
    """Expire every member with a deadline before ``now_ms`` (RouteInfoManager.scanNotActiveBroker).

    Returns:
        One entry per expired member, in the order of history (RESUME can leave many at one deadline). An entry is the
        group after the expiry, and the place of the expiry in history: the millisecond after the deadline, and the
        offset of the last heartbeat. Empty if no member expired.
    """
    expired = [
        (live.expire_ms, live.last_update_offset, key) for key, live in group.live.items() if live.expire_ms < now_ms
    ]
    steps: list[tuple[BrokerGroup, At]] = []
    if not expired:
        return steps
    for expire_ms, _, key in sorted(expired):
        live = group.live.get(key)
        if live is None:
            continue
        group = _without_member(group, key)
        steps.append((group, At(live.last_update_offset, expire_ms + 1)))
    return steps


def expire_overdue(group: BrokerGroup, keys: Iterable[BrokerKey], now_ms: int) -> BrokerGroup:
    """Expire the given members with a deadline before ``now_ms``. Return the group itself if there are none.

    This is for members that a pause of expiry kept beyond their deadline. Their expiry has the place of the event that
    ends the pause.
    """
    found = [(key, group.live[key]) for key in keys if key in group.live]
    overdue = [(live.expire_ms, live.last_update_offset, key) for key, live in found if live.expire_ms < now_ms]
    # In the order of `expire`, because the order can matter, and rows from the tables have none of their own.
    for *_, key in sorted(overdue):
        group = _without_member(group, key)
    return group


def extend_deadlines(group: BrokerGroup, gap_ms: int) -> BrokerGroup:
    """RESUME: move all deadlines by the time in which no gateway was running.

    The times at which gateways heard a broker move, too. Otherwise a gateway that still hears a broker would lose it
    to the next registration over another gateway.
    """
    if gap_ms <= 0 or not group.live:
        return group
    live = {
        key: msgspec.structs.replace(
            info,
            expire_ms=deadline_ms(info.expire_ms, gap_ms),
            channels={
                gateway: HeardChannel(heard.connection, deadline_ms(heard.heard_ms, gap_ms))
                for gateway, heard in info.channels.items()
            },
        )
        for key, info in group.live.items()
    }
    return replace(group, live=live)


def spare_overdue(group: BrokerGroup, now_ms: int, grace_ms: int) -> BrokerGroup:
    """PRESERVE_END with a grace: give overdue members that time to send a heartbeat."""
    overdue = {key: live for key, live in group.live.items() if live.expire_ms < now_ms}
    if not overdue:
        return group
    expire_ms = deadline_ms(now_ms - 1, grace_ms)
    moved = {key: msgspec.structs.replace(live, expire_ms=expire_ms) for key, live in overdue.items()}
    return replace(group, live={**group.live, **moved})


def remove_broker(group: BrokerGroup, key: BrokerKey) -> BrokerGroup:
    """Remove a broker as RouteInfoManager.unRegisterBroker and cleanTopicByUnRegisterRequests do for one request."""
    cluster, addr = key
    after = _without_live(group, key)
    if not group.known:
        return after
    addrs = {broker_id: held for broker_id, held in group.broker_addrs.items() if held != addr}
    if not addrs:
        gone = replace(
            after,
            known=False,
            cluster=None,
            clusters=group.clusters - {cluster},
            broker_addrs={},
            zone_name=None,
            enable_acting_master=False,
            topics=TopicTable({}),
        )
        # A live row that stays (the same address in another cluster) must not have a digest of removed topics.
        return without_digests(gone)
    if len(addrs) != len(group.broker_addrs):
        after = replace(after, broker_addrs=addrs)
    if group.enable_acting_master and min(addrs) > MASTER_ID:
        after = without_write_perm(after)
    return after


def without_write_perm(group: BrokerGroup) -> BrokerGroup:
    """Clear the write bit in every row of the group. Return the group itself if no row had it."""
    rows = group.topics.rows
    wiped = each_row(rows, lambda row: row._replace(perm=row.perm & ~PERM_WRITE))
    return replace(group, topics=TopicTable(wiped)) if wiped != rows else group


def without_digests(group: BrokerGroup) -> BrokerGroup:
    """Delete the digests of complete topic tables, because a row of the group was removed."""
    live = {key: msgspec.structs.replace(info, topic_config_digest=None) for key, info in group.live.items()}
    return replace(group, live=live)


def _without_member(group: BrokerGroup, key: BrokerKey) -> BrokerGroup:
    """Return the group after the expiry of one member. The member may have lost its address to another one before."""
    return remove_broker(group, key) if _holds_address(group, key) else _without_live(group, key)


def _without_live(group: BrokerGroup, key: BrokerKey) -> BrokerGroup:
    if key not in group.live and key not in group.filter_servers:
        return group
    return replace(group, live=without(group.live, key), filter_servers=without(group.filter_servers, key))


def _holds_address(group: BrokerGroup, key: BrokerKey) -> bool:
    """Return True if the loss of this live row is the loss of the address.

    That is so if the address is in the group and no other cluster's row has it.
    """
    cluster, addr = key
    if addr not in group.broker_addrs.values():
        return False
    return group.cluster == cluster or not any(other != key and other[1] == addr for other in group.live)

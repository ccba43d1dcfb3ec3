# SPDX-License-Identifier: Apache-2.0
"""Notifications that the smallest brokerId of a group has changed. Pure: two views in, notifications out.

RocketMQ notifies once per event. A view advances by epochs, so several events may have come together. Then each broker
gets one notification with the final state.

Source: RouteInfoManager.registerBroker, unRegisterBroker, notifyMinBrokerIdChanged, chooseBrokerAddrsToNotify (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nameserver.view.model import RouteBroker
from nameserver.view.snapshot import RouteView


class Notification(NamedTuple):
    """One NOTIFY_MIN_BROKER_ID_CHANGE (NotifyMinBrokerIdChangeRequestHeader), and its receiver."""

    broker_name: str
    to: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None

    def ext_fields(self) -> dict[str, str]:
        """Return the custom header. Null fields are left out."""
        fields = {
            "minBrokerId": str(self.min_broker_id),
            "minBrokerAddr": self.min_broker_addr,
            "offlineBrokerAddr": self.offline_broker_addr,
            "haBrokerAddr": self.ha_broker_addr,
        }
        return {name: value for name, value in fields.items() if value is not None}


def notifications(before: RouteView, after: RouteView) -> Iterator[Notification]:
    """Yield the notifications that RocketMQ would send on the way from one view to a later one.

    Args:
        before: Earlier view.
        after: Later view. Groups that did not change are the same objects in both.
    """
    if before.groups is after.groups:
        return
    for name, group in after.groups.items():
        previous = before.groups.get(name)
        if previous is not None and previous is not group:
            yield from _of_group(previous, group, before, after)


def _of_group(previous: RouteBroker, group: RouteBroker, before: RouteView, after: RouteView) -> Iterator[Notification]:
    old, new = previous.row.broker_addrs, group.row.broker_addrs
    if not old or not new:
        return
    old_id, new_id = min(old), min(new)
    if (old_id, old[old_id]) == (new_id, new[new_id]):
        return
    offline = None
    if old_id == new_id:
        # Another address has the id now. If the old address is still alive, the new one took over its id, and RocketMQ
        # sends nothing. Otherwise the old address had left first.
        if old[old_id] in _live_addrs(after, group.name):
            return
    elif old_id < new_id:
        # The address took a higher id itself, or the group wants no acting master: RocketMQ sends nothing.
        if old[old_id] in new.values() or not group.row.enable_acting_master:
            return
        offline = old[old_id]
    ha_addr = None
    if offline is None:
        live = after.live_rows(group.name)
        ha_addr = next((row.ha_server_addr for (_, addr), row in live.items() if addr == new[new_id]), None)
    for broker_id, addr in new.items():
        if offline is not None or len(new) == 1 or broker_id != new_id:
            yield Notification(group.name, addr, new_id, new[new_id], offline, ha_addr)


def _live_addrs(view: RouteView, broker_name: str) -> set[str]:
    return {addr for _, addr in view.live_rows(broker_name)}

# SPDX-License-Identifier: Apache-2.0
"""Answers to current reads at an earlier point in time, with the part of the tables that each of them needs.

brokerLiveTable's times of heartbeats are those of the epoch; what happened within an epoch moves none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lake.delta.query import text
from lake.history.as_of import AsOf
from lake.history.history import History
from lake.history.state_at import Condition, key_literal
from nameserver.view.snapshot import RouteView
from schemas.kv import is_reserved
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    KV_CONFIG_TABLE,
    TOPIC_QUEUE_TABLE,
)


def topics_at(history: History, point: AsOf, cluster: str | None = None) -> Sequence[str]:
    """Names of the topics, sorted; of a cluster, or of all."""
    if cluster is None:
        return history.topics(point)
    wanted = Condition(f'"cluster" = {text(cluster)}', _begins_with("cluster", cluster))
    members = history.view(point, {CLUSTER_ADDR_TABLE.name: wanted}).clusters
    return history.topics(point, members.get(cluster, ()))


def page_at(history: History, point: AsOf, page: Sequence[str]) -> RouteView:
    """A view of the topics of a page, which are neighbours in the order of names, and of all broker groups."""
    if not page:
        return RouteView.empty()
    between = f'"topic" >= {text(page[0])} AND "topic" <= {text(page[-1])}'
    return history.view(point, {TOPIC_QUEUE_TABLE.name: Condition(between), BROKER_ADDR_TABLE.name: Condition()})


def clusters_at(history: History, point: AsOf) -> RouteView:
    """A view of all broker groups and clusters."""
    return history.view(point, {BROKER_ADDR_TABLE.name: Condition(), CLUSTER_ADDR_TABLE.name: Condition()})


def brokers_at(history: History, point: AsOf) -> RouteView:
    """A view of all live addresses, and of the groups, in which their ids are."""
    return history.view(point, {BROKER_ADDR_TABLE.name: Condition(), BROKER_LIVE_TABLE.name: Condition()})


def broker_at(history: History, point: AsOf, broker_name: str) -> RouteView:
    """A view of one broker group and its topics."""
    of_group = Condition(f'"brokerName" = {text(broker_name)}')
    tables = (BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE)
    return history.view(point, {table.name: of_group for table in tables})


def kv_at(history: History, point: AsOf, namespace: str, key: str | None = None) -> RouteView:
    """A view of one namespace, or of one key in it."""
    if is_reserved(namespace):
        return RouteView.empty()
    of_rows = f'"namespace" = {text(namespace)}'
    if key is None:
        wanted = Condition(of_rows, _begins_with("namespace", namespace))
    else:
        of_changes = f'"key" = {key_literal(namespace=namespace, key=key)}'
        wanted = Condition(f'{of_rows} AND "key" = {text(key)}', of_changes)
    return history.view(point, {KV_CONFIG_TABLE.name: wanted})


def _begins_with(column: str, value: str) -> str:
    """SQL: the first of the key columns, in routeChangeTable's JSON, has a value."""
    head = msgspec.json.encode({column: value}).decode().removesuffix("}")
    return f'(starts_with("key", {text(head + ",")}) OR "key" = {text(head + "}")})'

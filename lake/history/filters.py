# SPDX-License-Identifier: Apache-2.0
"""Filters for rows of routeChangeTable, by changed row and by cause.

*The changes that concern a topic* explain its route to an operator ("who deleted the topic", "why is its route gone"):

1. Every row change and command that names the topic: queue rows, static mapping, deletion, wiped permissions. Queue
   rows are removed with an expired or unregistered broker, so they show the cause: BROKER_EXPIRED, UNREGISTER_BROKER or
   CHANNEL_CLOSED.
2. Changes of its order configuration (kvConfigTable).
3. Changes of the broker groups that have or ever had the topic. Address and filter server changes change the route
   while the queue rows stay. Refused registrations explain a missing topic.
4. If any group ever had the topic, start and end of self-preservation. They explain why its brokers did not expire, or
   expired all at once.

Rows of brokerLiveTable are left out, as every registration changes them, and 1 and 3 show a removed broker. Rows of
clusterAddrTable are left out, as they are not part of a route.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final, get_args

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from lake.history.history import History
from lake.history.state_at import key_literal
from nameserver.state_machine.step import BROKER_EXPIRED
from schemas.errors import BadRequestError
from schemas.events import AnyEvent, Preserve, PreserveEnd
from schemas.kv import ORDER_TOPIC_CONFIG
from schemas.tables import (
    BROKER_ADDR_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_TABLE,
)

COMMANDS: Final = frozenset({*(str(event.__struct_config__.tag) for event in get_args(AnyEvent)), BROKER_EXPIRED})
_PAUSES: Final = tuple(str(event.__struct_config__.tag) for event in (Preserve, PreserveEnd))
TABLES: Final = frozenset(table.name for table in STATE_TABLES)


class Filters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Conditions on a row, encoded as parameters of HTTP. None is no condition.

    Attributes:
        topic: Topic of the changed row or of the command.
        concerning: Topic for all changes that concern it (see the module docstring).
        broker_name: Broker group of the changed row or of the command.
        cluster: Cluster, for changes of broker groups that ever registered into it, and commands that name it.
        table_name: State table of the changed row.
        command: RequestCode name, or CHANNEL_CLOSED, BROKER_EXPIRED, RESUME, PRESERVE, PRESERVE_END, ACCESS_REFUSED.
        peer: Address of the client that sent the command, with or without port.
        user: User that sent the command.
        outcome: applied, unchanged or rejected.
    """

    topic: str | None = None
    concerning: str | None = None
    broker_name: str | None = None
    cluster: str | None = None
    table_name: str | None = None
    command: str | None = None
    peer: str | None = None
    user: str | None = None
    outcome: str | None = None

    def check(self) -> None:
        """Refuse conditions that no row can meet.

        Raises:
            BadRequestError: There is no such table or command.
        """
        if self.table_name is not None and self.table_name not in TABLES:
            raise _unknown("tableName", self.table_name, TABLES)
        if self.command is not None and self.command not in COMMANDS:
            raise _unknown("command", self.command, COMMANDS)

    def of_rows(self, history: History, changes: DeltaTable) -> str:
        """SQL condition on the changed rows."""
        terms = ["true"]
        if self.concerning is not None:
            terms.append(_concerning(history, changes, self.concerning))
        terms += _equal(topic=self.topic, brokerName=self.broker_name, tableName=self.table_name)
        if self.cluster is not None:
            named = query.text(f'"clusterName":{_json(self.cluster)}')
            members = query.texts(_members(changes, self.cluster) or [""])
            terms.append(f'("brokerName" IN {members} OR ("tableName" IS NULL AND strpos("key", {named}) > 0))')
        return " AND ".join(terms)

    def of_causes(self) -> str | None:
        """SQL condition on the causes, or None without one."""
        terms = _equal(command=self.command, outcome=self.outcome)
        if self.user is not None:
            terms.append(_actor_has(f'"user":{_json(self.user)}'))
        if self.peer is not None:
            terms.append(_from_peer(self.peer))
        return " AND ".join(terms) or None


def _equal(**columns: str | None) -> list[str]:
    """SQL conditions for columns with given values. None is no condition."""
    return [f'"{name}" = {query.text(value)}' for name, value in columns.items() if value is not None]


def _members(changes: DeltaTable, cluster: str) -> list[str]:
    """Broker groups that ever registered into a cluster."""
    head = query.text(f'{{"cluster":{_json(cluster)},')
    sql = (
        f'SELECT DISTINCT "brokerName" FROM t WHERE "tableName" = {query.text(CLUSTER_ADDR_TABLE.name)} '  # noqa: S608
        f'AND starts_with("key", {head}) AND "brokerName" IS NOT NULL ORDER BY "brokerName"'
    )
    found: list[str] = query.select(changes, sql)["brokerName"].to_pylist()
    return found


def _from_peer(peer: str) -> str:
    """SQL condition for an address with or without port, and IPv6 with or without brackets."""
    if peer.count(":") > 1 and not peer.startswith("["):
        peer = f"[{peer}]"
    has_port = not peer.endswith("]") and ":" in peer
    return _actor_has(f'"peer":{_json(peer)}' if has_port else f'"peer":{_json(peer)[:-1]}:')


def _actor_has(member: str) -> str:
    """SQL condition for a member of ``actor``. JSON escapes quotes in values, so only a member can match."""
    return f'strpos("actor", {query.text(member)}) > 0'


def _json(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _unknown(field: str, value: str, known: frozenset[str]) -> BadRequestError:
    return BadRequestError(
        f"{field} must be one of {', '.join(sorted(known))}, not {value!r}", field=field, value=value
    )


class Context(msgspec.Struct, frozen=True):
    """Data to find the changes of a topic: its past and present broker groups, and epochs of its order configuration.

    The table only grows, so data up to an epoch stays valid.
    """

    holders: frozenset[str]
    kv_epochs: frozenset[int]
    newest_epoch: int

    def size_bytes(self) -> int:
        """Size in memory, bytes."""
        return sum(getsizeof(held) + sum(map(getsizeof, held)) for held in (self.holders, self.kv_epochs))


def _context(history: History, table: DeltaTable, topic: str) -> Context:
    """The context up to the newest epoch, continued from the cached one."""
    known = history.contexts.get(topic) or Context(frozenset(), frozenset(), 0)
    newest_epoch = history.mark().epoch
    if known.newest_epoch >= newest_epoch:
        return known
    queues, kv = query.text(TOPIC_QUEUE_TABLE.name), query.text(KV_CONFIG_TABLE.name)
    rows = query.select(
        table,
        f'SELECT DISTINCT CASE WHEN "tableName" = {kv} THEN NULL ELSE "brokerName" END AS "holder", '  # noqa: S608
        f'CASE WHEN "tableName" = {kv} THEN "epoch" END AS "kv" '
        f'FROM t WHERE "epoch" > {known.newest_epoch} AND "epoch" <= {newest_epoch} '
        f'AND ("tableName" = {kv} OR ("tableName" = {queues} AND "topic" = {query.text(topic)}))',
    )
    holders = {name for name in rows["holder"].to_pylist() if name is not None}
    epochs = [epoch for epoch in rows["kv"].to_pylist() if epoch is not None]
    if epochs:  # the wide column of keys is read only for these epochs
        rows = query.select(
            table,
            f'SELECT DISTINCT "epoch" FROM t WHERE "epoch" IN ({", ".join(map(str, epochs))}) '  # noqa: S608
            f'AND "tableName" = {kv} AND "key" = {_order_conf(topic)}',
        )
        epochs = rows["epoch"].to_pylist()
    found = Context(known.holders | holders, known.kv_epochs | set(epochs), newest_epoch)
    history.contexts.put(topic, found, getsizeof(topic) + found.size_bytes())
    return found


def _concerning(history: History, table: DeltaTable, topic: str) -> str:
    """SQL condition for rows that concern a topic."""
    context = _context(history, table, topic)
    terms = [f'"topic" = {query.text(topic)}']
    if context.kv_epochs:
        terms.append(
            f'("epoch" IN ({", ".join(map(str, sorted(context.kv_epochs)))}) '
            f'AND "tableName" = {query.text(KV_CONFIG_TABLE.name)} AND "key" = {_order_conf(topic)})'
        )
    if context.holders:
        tables = query.texts((BROKER_ADDR_TABLE.name, FILTER_SERVER_TABLE.name))
        terms.append(
            f'(("tableName" IN {tables} OR "outcome" = \'rejected\') '
            f'AND "brokerName" IN {query.texts(sorted(context.holders))})'
        )
        terms.append(f'"command" IN {query.texts(_PAUSES)}')
    return f"({' OR '.join(terms)})"


def _order_conf(topic: str) -> str:
    return key_literal(namespace=ORDER_TOPIC_CONFIG, key=topic)

# SPDX-License-Identifier: Apache-2.0
"""Filters of rows of routeChangeTable: which rows, caused by whom."""

from __future__ import annotations

from typing import Final, get_args

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from nameserver.state_machine.step import BROKER_EXPIRED
from schemas.errors import BadRequestError
from schemas.events import AnyEvent
from schemas.tables import CLUSTER_ADDR_TABLE, STATE_TABLES

COMMANDS: Final = frozenset({*(str(event.__struct_config__.tag) for event in get_args(AnyEvent)), BROKER_EXPIRED})
TABLES: Final = frozenset(table.name for table in STATE_TABLES)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What a row must agree with; None is no condition.

    Attributes:
        topic: Topic of the changed row or of the command.
        broker_name: Broker group, likewise.
        cluster: Broker groups that ever registered into it, and commands that name it.
        table_name: State table of the changed row.
        command: RequestCode name, or CHANNEL_CLOSED, BROKER_EXPIRED, RESUME, PRESERVE, PRESERVE_END, ACCESS_REFUSED.
        peer: Address of who sent it, with its port or without.
        user: Who sent it.
        outcome: applied, unchanged or rejected.
    """

    topic: str | None = None
    broker_name: str | None = None
    cluster: str | None = None
    table_name: str | None = None
    command: str | None = None
    peer: str | None = None
    user: str | None = None
    outcome: str | None = None

    def check(self) -> None:
        """Refuse what no row can agree with.

        Raises:
            BadRequestError: There is no such table or command.
        """
        if self.table_name is not None and self.table_name not in TABLES:
            raise _unknown("tableName", self.table_name, TABLES)
        if self.command is not None and self.command not in COMMANDS:
            raise _unknown("command", self.command, COMMANDS)

    def of_rows(self, changes: DeltaTable) -> str:
        """SQL: which rows it is about."""
        terms = ["true"]
        if self.topic is not None:
            terms.append(f'"topic" = {query.text(self.topic)}')
        if self.broker_name is not None:
            terms.append(f'"brokerName" = {query.text(self.broker_name)}')
        if self.table_name is not None:
            terms.append(f'"tableName" = {query.text(self.table_name)}')
        if self.cluster is not None:
            named = query.text(f'"clusterName":{_json(self.cluster)}')
            members = query.texts(_members(changes, self.cluster) or [""])
            terms.append(f'("brokerName" IN {members} OR ("tableName" IS NULL AND strpos("key", {named}) > 0))')
        return " AND ".join(terms)

    def of_causes(self) -> str | None:
        """SQL: by whom; None for anybody."""
        terms = []
        if self.command is not None:
            terms.append(f'"command" = {query.text(self.command)}')
        if self.outcome is not None:
            terms.append(f'"outcome" = {query.text(self.outcome)}')
        if self.user is not None:
            terms.append(_actor_has(f'"user":{_json(self.user)}'))
        if self.peer is not None:
            terms.append(_from_peer(self.peer))
        return " AND ".join(terms) or None


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
    """By address, or by address and port; IPv6 with brackets or without."""
    if peer.count(":") > 1 and not peer.startswith("["):
        peer = f"[{peer}]"
    has_port = not peer.endswith("]") and ":" in peer
    return _actor_has(f'"peer":{_json(peer)}' if has_port else f'"peer":{_json(peer)[:-1]}:')


def _actor_has(member: str) -> str:
    """The column is JSON text in which a member's quotes cannot be part of a value."""
    return f'strpos("actor", {query.text(member)}) > 0'


def _json(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _unknown(field: str, value: str, known: frozenset[str]) -> BadRequestError:
    return BadRequestError(
        f"{field} must be one of {', '.join(sorted(known))}, not {value!r}", field=field, value=value
    )

# SPDX-License-Identifier: Apache-2.0
"""Of each field of a topic's route: who set it to what it is, when, by what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from lake.delta import query
from lake.history.as_of_resolver import AsOf
from lake.history.history import History
from lake.history.provenance import Cause, RowStep, of_tables, row_steps
from schemas.tables import BROKER_ADDR_TABLE, TOPIC_QUEUE_TABLE

_ADDRESSES: Final = "brokerAddrs"


class Field(msgspec.Struct, frozen=True, rename="camel"):
    """A field as it is since ``event_time``. An address is the field ``brokerAddrs.<brokerId>``."""

    table_name: str
    broker_name: str
    field: str
    value: Any
    epoch: int
    event_time: datetime
    set_by: Cause


class Blame(msgspec.Struct, frozen=True):
    """The fields of a route at a moment, by brokerName and table; none where it had no route."""

    moment: AsOf
    fields: list[Field]


def topic_blame(history: History, topic: str, as_of: str) -> Blame:
    """Who set what a topic's route is made of.

    Raises:
        RoutelakeError: As `History.resolve`; the state tables of then need not be kept.
    """
    moment = history.resolve(as_of)
    with history.reading_changes() as table:
        of_topic = f'{of_tables([TOPIC_QUEUE_TABLE.name])} AND "topic" = {query.text(topic)}'
        steps = row_steps(history, table, f"{of_topic} AND {moment.changes}")
        queues = _fields(steps)
        holders = sorted({name for name, fields in queues.items() if fields})
        if holders:
            of_groups = f'{of_tables([BROKER_ADDR_TABLE.name])} AND "brokerName" IN {query.texts(holders)}'
            groups = _fields(row_steps(history, table, f"{of_groups} AND {moment.changes}"))
        else:
            groups = {}
    if not any(groups.values()):
        return Blame(moment, [])
    parts = [part for name in holders for part in (queues[name], groups.get(name, {}))]
    return Blame(moment, [field for part in parts for field in part.values()])


def _fields(steps: list[RowStep]) -> dict[str, dict[str, Field]]:
    """brokerName -> field -> what it was set to last; of rows that are there."""
    found: dict[str, dict[str, Field]] = {}
    for step in steps:
        before, after = dict(_values(step.before)), dict(_values(step.after))
        known = found.get(step.broker_name, {}) if step.before is not None else {}
        found[step.broker_name] = {
            name: known[name]
            if name in known and name in before and before[name] == value
            else Field(step.table_name, step.broker_name, name, value, step.epoch, step.event_time, step.cause)
            for name, value in after.items()
        }
    return found


def _values(row: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Fields of a row, each address one of its own."""
    for name, value in (row or {}).items():
        if name == _ADDRESSES:
            yield from ((f"{name}.{broker_id}", address) for broker_id, address in (value or {}).items())
        else:
            yield name, value

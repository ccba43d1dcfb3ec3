# SPDX-License-Identifier: Apache-2.0
"""What a timeline shows: of rows of the state tables, the part of one broker group, and of such parts a state."""

from __future__ import annotations

from typing import Any

import msgspec

from lake.history.provenance import RowStep
from schemas.broker import PERM_READ, PERM_WRITE
from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE

Rows = dict[tuple[str, str], dict[str, dict[str, Any]]]
"""(table, brokerName) -> key -> value columns."""
Part = dict[str, Any] | None
"""What is shown of one broker group."""


def topic_part(rows: Rows, broker_name: str) -> Part:
    """A topic on one broker group; None where it does not hold it."""
    queues = rows.get((TOPIC_QUEUE_TABLE.name, broker_name))
    if not queues:
        return None
    addresses = _one(rows, BROKER_ADDR_TABLE.name, broker_name)
    shown = {"brokerName": broker_name, **next(iter(queues.values()))}
    return {**shown, "brokerAddrs": None if addresses is None else addresses["brokerAddrs"]}


def topic_state(parts: dict[str, Part]) -> dict[str, Any]:
    """A route."""
    found = [part for _, part in sorted(parts.items()) if part is not None]
    write = sum(part["writeQueueNums"] for part in found if part["perm"] & PERM_WRITE)
    read = sum(part["readQueueNums"] for part in found if part["perm"] & PERM_READ)
    return {
        "writable": write > 0,
        "readable": read > 0,
        "writeQueueNums": write,
        "readQueueNums": read,
        "brokers": found,
    }


def broker_part(rows: Rows, broker_name: str) -> Part:
    """A broker group; None where it is not there."""
    addresses = _one(rows, BROKER_ADDR_TABLE.name, broker_name)
    live = rows.get((BROKER_LIVE_TABLE.name, broker_name), {})
    if addresses is None and not live:
        return None
    keys = [msgspec.json.decode(key) for key in sorted(live)]
    return {
        "cluster": None if addresses is None else addresses["cluster"],
        "brokerAddrs": None if addresses is None else addresses["brokerAddrs"],
        "live": [{"clusterName": key["clusterName"], "brokerAddr": key["brokerAddr"]} for key in keys],
    }


def broker_state(parts: dict[str, Part]) -> dict[str, Any]:
    """A broker group, there or not."""
    found = next(iter(parts.values()), None)
    return {"alive": bool(found and found["live"]), **(found or {"cluster": None, "brokerAddrs": None, "live": []})}


def _one(rows: Rows, table_name: str, broker_name: str) -> dict[str, Any] | None:
    return next(iter(rows.get((table_name, broker_name), {}).values()), None)


def copy_rows(rows: Rows) -> Rows:
    """A copy that `apply_step` may change."""
    return {name: dict(of_broker) for name, of_broker in rows.items()}


def apply_step(rows: Rows, step: RowStep) -> None:
    """Change rows as a change did."""
    of_broker = rows.setdefault((step.table_name, step.broker_name), {})
    if step.after is None:
        of_broker.pop(step.key, None)
    else:
        of_broker[step.key] = step.after


def rows_shown(state: dict[str, Any]) -> int:
    """How large a state is: of how many broker groups or live addresses it tells, and itself."""
    return 1 + len(state.get("brokers", ())) + len(state.get("live", ()))

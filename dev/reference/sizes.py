# SPDX-License-Identifier: Apache-2.0
"""The table of sizes in the production checklist, as `routelake plan` computes it."""

from __future__ import annotations

from cli.plan import size
from dev.reference.markdown import table as markdown_table
from ops.capacity import Demand, plan

EXAMPLES = ((60, 2_000), (300, 10_000), (1_000, 10_000))
"""Broker groups and topics of each row."""


def table() -> str:
    """Return the table, a row for each example."""
    head = (
        *("broker groups", "topics", "queue rows", "memory of a gateway", "cores of a gateway"),
        *("memory of the fold", "event log a day", "tables, disk"),
    )
    rows = []
    for brokers, topics in EXAMPLES:
        found = plan(demand(brokers, topics))
        fold = size(found.fold_memory) + ("" if found.fold_memory_is_measured else " (estimate)")
        rows.append(
            (
                *(f"{brokers:,}", f"{topics:,}", f"{found.queue_rows:,}", size(found.gateway_memory)),
                *(str(found.gateway_cores), fold, size(found.event_log_day), size(found.tables_disk)),
            )
        )
    return markdown_table(head, rows)


def demand(brokers: int, topics: int) -> Demand:
    """Return the demand of `routelake plan --brokers N --topics M` without more options."""
    return Demand(
        brokers=brokers,
        replicas=1,
        topics=topics,
        groups_a_topic=brokers,
        heartbeat_interval_s=1.0,
        changes=1_000,
        clients=1_000,
        topics_a_client=10,
        gateways=2,
        event_log="kafka",
        event_log_hours=24.0,
        history_days=30,
    )

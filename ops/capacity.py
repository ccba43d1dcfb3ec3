# SPDX-License-Identifier: Apache-2.0
"""Estimates of the needs of a deployment: memory, processor, disk, Kafka and ports. Pure functions.

Each constant is a figure that a benchmark measured on two cores of an AMD EPYC, in an hour in which RocketMQ's
NameServer answered 38,217 heartbeats per second. tests/ops/test_capacity.py compares them with reports/performance.md.
Memory and processor time are doubled (`RESERVE`), because other machines, busy hours and storms of registrations need
more than the mean.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

RESERVE: Final = 2.0
"""Factor between a measured figure and the planned one, for memory and processor time."""

GATEWAY_BASE_BYTES: Final = 230_000_000
"""Resident memory of a gateway without routes, by linear extrapolation from both figures of cold-start."""
GATEWAY_ROW_BYTES: Final = 122
"""Resident memory of a gateway per queue row: cold-start, 3,000,000 and 10,000,000 rows."""
FOLD_BASE_BYTES: Final = int(1.85 * 2**30)
"""Memory of the fold process, 1.25 GiB, and of the JVM without its heap, 0.6 GiB."""
FOLD_HEAP_BYTES: Final = 2**30
"""Default of --driver-memory."""
FOLD_WORKER_BYTES: Final = int(0.75 * 2**30)
"""Memory of one Python worker (one shard), up to `FOLD_MEASURED_ROWS`."""
FOLD_SHARDS: Final = 2
"""Default of --shards."""
FOLD_MEASURED_ROWS: Final = 3_000_000
"""Greatest number of queue rows for which the fold's memory was measured."""

HEARTBEAT_LOG_BYTES: Final = 212
"""Bytes that one heartbeat adds to the event log: idle, 366 MB per day with 20 brokers."""
REGISTRATION_LOG_BYTES: Final = 420
"""Bytes that one unchanged registration adds to the event log: plan, topicless."""
CLOCKS_A_DAY: Final = 17_280
"""CLOCK events of one gateway per day, one every 5 s."""
REGISTRATION_INTERVAL_S: Final = 30
"""Default of registerNameServerPeriod of a broker."""

LIVENESS_COMMITS_A_DAY: Final = 8_640
"""Commits per day with only heartbeat times, one every 10 s."""
LIVENESS_COMMIT_BYTES: Final = 22_400
"""Bytes that such a commit adds to both tables without brokers: idle, 197 MB per day with 20 brokers."""
LIVENESS_BROKER_BYTES: Final = 18
"""Bytes that each broker adds to such a commit: plan, 20, 300 and 1,000 brokers."""
LIVENESS_CHECKPOINT_BYTES: Final = 134_000_000
"""Bytes that such commits add to the checkpoints of the tables per day: 4 GB in 30 days."""
CHANGE_BYTES: Final = 79_000
"""Bytes of an epoch that changes a topic, with its share of checkpoints: growth, 7,888 MB for 100,000 epochs."""

HEARTBEAT_S: Final = {"kafka": 112e-6, "sqlite": 86e-6}
"""Processor time of a gateway for one heartbeat, by the event log: acknowledge."""
REGISTRATION_S: Final = {"kafka": 147e-6, "sqlite": 131e-6}
"""Processor time of a gateway for one unchanged registration: acknowledge."""
ROUTE_READ_S: Final = 10.9e-6
"""Processor time of a gateway for one route request: route-read, one request at a time."""
CLIENT_INTERVAL_S: Final = 30
"""Seconds between route requests of a client for each of its topics: default of pollNameServerInterval."""
FOLD_IDLE_CORES: Final = 0.09
"""Cores of the fold with 20 brokers: idle."""
FOLD_EVENT_S: Final = 131e-6
"""Processor time of the fold for one event: acknowledge, 1.31 cores at 10,000 events per second."""
FOLD_STORM_CORES: Final = 2
"""Cores that the fold uses while all brokers register again: storm."""
APPENDS_A_SECOND: Final = {"kafka": 7_000, "sqlite": 9_500}
"""Durable heartbeats that one gateway acknowledges per second: acknowledge."""


class Demand(msgspec.Struct, frozen=True, rename="camel"):
    """A deployment to plan.

    Attributes:
        brokers: Broker groups (brokerName).
        replicas: Brokers in each group.
        topics: Total number of topics.
        groups_a_topic: Broker groups that each topic is on.
        heartbeat_interval_s: Seconds between heartbeats of a broker. 0: brokers only register.
        changes: Topic changes per day.
        clients: Producers and consumers.
        topics_a_client: Topics of each client.
        gateways: Gateways. They share one event log.
        event_log: ``kafka`` or ``sqlite``.
        event_log_hours: Retention time of the event log.
        history_days: Retention time of the history.
    """

    brokers: int
    replicas: int
    topics: int
    groups_a_topic: int
    heartbeat_interval_s: float
    changes: int
    clients: int
    topics_a_client: int
    gateways: int
    event_log: str
    event_log_hours: float
    history_days: int

    @property
    def queue_rows(self) -> int:
        """Pairs of a topic and a broker group."""
        return self.topics * self.groups_a_topic

    @property
    def heartbeats_s(self) -> float:
        """Heartbeats per second."""
        return self.brokers * self.replicas / self.heartbeat_interval_s if self.heartbeat_interval_s else 0.0

    @property
    def registrations_s(self) -> float:
        """Registrations per second."""
        return self.brokers * self.replicas / REGISTRATION_INTERVAL_S

    @property
    def route_reads_s(self) -> float:
        """Route requests of all clients per second."""
        return self.clients * self.topics_a_client / CLIENT_INTERVAL_S


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """The needs of a `Demand`. Sizes are in bytes, ``_day`` is for one day."""

    queue_rows: int
    events_s: float
    route_reads_s: float
    gateways: int
    gateway_memory: int
    gateway_cores: int
    fold_memory: int
    fold_memory_is_measured: bool
    fold_cores: int
    fold_mean_cores: float
    event_log_day: int
    event_log_disk: int
    tables_day: int
    tables_disk: int
    fits_one_machine: bool


def plan(demand: Demand) -> Plan:
    """Return the needs of a deployment."""
    rows, log = demand.queue_rows, demand.event_log
    brokers = demand.brokers * demand.replicas
    events_s = demand.heartbeats_s + demand.registrations_s
    gateways = max(demand.gateways, ceil(RESERVE * events_s / APPENDS_A_SECOND[log]))
    busy = demand.heartbeats_s * HEARTBEAT_S[log] + demand.registrations_s * REGISTRATION_S[log]
    busy += demand.route_reads_s * ROUTE_READ_S
    log_day = demand.heartbeats_s * 86_400 * HEARTBEAT_LOG_BYTES + demand.registrations_s * 86_400 * (
        REGISTRATION_LOG_BYTES
    )
    log_day += gateways * CLOCKS_A_DAY * HEARTBEAT_LOG_BYTES
    liveness_day = LIVENESS_COMMITS_A_DAY * (LIVENESS_COMMIT_BYTES + brokers * LIVENESS_BROKER_BYTES)
    tables_day = liveness_day + LIVENESS_CHECKPOINT_BYTES + demand.changes * CHANGE_BYTES
    workers = FOLD_SHARDS * FOLD_WORKER_BYTES * max(1.0, rows / FOLD_MEASURED_ROWS)
    return Plan(
        queue_rows=rows,
        events_s=events_s,
        route_reads_s=demand.route_reads_s,
        gateways=gateways,
        gateway_memory=int(RESERVE * (GATEWAY_BASE_BYTES + rows * GATEWAY_ROW_BYTES)),
        # All gateways but one must carry the load, as one may be down.
        gateway_cores=max(1, ceil(RESERVE * busy / max(1, gateways - 1))),
        fold_memory=int(FOLD_BASE_BYTES + FOLD_HEAP_BYTES + workers),
        fold_memory_is_measured=rows <= FOLD_MEASURED_ROWS,
        fold_cores=max(FOLD_STORM_CORES, ceil(RESERVE * events_s * FOLD_EVENT_S)),
        fold_mean_cores=FOLD_IDLE_CORES + events_s * FOLD_EVENT_S,
        event_log_day=int(log_day),
        event_log_disk=int(log_day * (demand.event_log_hours + 24) / 24),
        tables_day=tables_day,
        tables_disk=tables_day * (demand.history_days + 1),
        fits_one_machine=RESERVE * events_s <= APPENDS_A_SECOND["sqlite"] and rows <= FOLD_MEASURED_ROWS,
    )

# SPDX-License-Identifier: Apache-2.0
"""`routelake plan`: sizes of a deployment, from measured figures."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer

from cli.output import TextOutput
from ops.capacity import Demand, Plan

_PORTS = {
    "gateway": [
        ("brokers, clients, mqadmin", 9876, "--remoting"),
        ("operators, load balancer, Prometheus", 8080, "--http"),
    ],
    "Kafka": [("gateways, fold", 9092, "--event-log")],
    "object store": [("gateways, fold", 443, "--lake")],
}
"""Connections by listening process: processes that connect, port, and option for the port."""


def plan(
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=100_000, help="Number of broker groups.")],
    topics: Annotated[int, typer.Option("--topics", min=1, max=10_000_000, help="Number of topics.")],
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=16, help="Brokers in each broker group.")] = 1,
    groups_a_topic: Annotated[
        int | None,
        typer.Option("--groups-per-topic", min=1, help="Broker groups that a topic is on. Default: all of them."),
    ] = None,
    heartbeat_interval_s: Annotated[
        float,
        typer.Option(
            "--heartbeat-interval-s",
            min=0,
            max=3_600,
            help="Seconds between heartbeats of a broker. 0: brokers only register, as before RocketMQ 5.",
        ),
    ] = 1.0,
    changes: Annotated[int, typer.Option("--changes", min=0, help="Topics that change in a day.")] = 1_000,
    clients: Annotated[int, typer.Option("--clients", min=0, help="Number of producers and consumers.")] = 1_000,
    topics_a_client: Annotated[
        int, typer.Option("--topics-per-client", min=0, help="Topics that each client uses.")
    ] = 10,
    gateways: Annotated[
        int | None,
        typer.Option("--gateways", min=1, max=100, help="Minimum number of gateways. Default: 2; with SQLite 1."),
    ] = None,
    one_machine: Annotated[
        bool, typer.Option("--one-machine", help="Plan for `serve` with the event log in SQLite.")
    ] = False,
    history_days: Annotated[
        int,
        typer.Option(
            "--history-retention-days", min=1, max=36_500, help="Retention time of old versions of the tables, in days."
        ),
    ] = 30,
    event_log_hours: Annotated[
        float,
        typer.Option(
            "--event-log-retention-hours", min=0, max=876_000, help="Retention time of the event log, in hours."
        ),
    ] = 24.0,
    output: Annotated[TextOutput, typer.Option("-o", "--output", help="Form of the output.")] = TextOutput.TEXT,
) -> None:
    """Print memory, processor, disk and ports for a number of brokers and topics.

    The figures come from the benchmarks of reports/performance.md, with a reserve of 2 for memory and processor.
    """
    from ops.capacity import Demand, plan

    demand = Demand(
        brokers=brokers,
        replicas=replicas,
        topics=topics,
        groups_a_topic=min(groups_a_topic or brokers, brokers),
        heartbeat_interval_s=heartbeat_interval_s,
        changes=changes,
        clients=clients,
        topics_a_client=topics_a_client,
        gateways=gateways or (1 if one_machine else 2),
        event_log="sqlite" if one_machine else "kafka",
        event_log_hours=event_log_hours,
        history_days=history_days,
    )
    found = plan(demand)
    print(_as_json(demand, found) if output is TextOutput.JSON else _as_text(demand, found))


def _as_json(demand: Demand, found: Plan) -> str:
    ports = [{"to": to, "from": peers, "port": port, "option": option} for to, peers, port, option in _ports(demand)]
    return json.dumps(msgspec.to_builtins({"demand": demand}) | msgspec.to_builtins(found) | {"ports": ports}, indent=2)


def _as_text(demand: Demand, found: Plan) -> str:
    log = "Kafka, each replica" if demand.event_log == "kafka" else "SQLite"
    fold_note = "" if found.fold_memory_is_measured else "  (estimate: measure it; consider a Spark cluster)"
    rows = [
        ("queue rows", f"{found.queue_rows:,}"),
        ("events a second", f"{found.events_s:,.0f}"),
        ("route requests a second", f"{found.route_reads_s:,.0f}"),
        ("gateways", f"{found.gateways}"),
        ("  memory of each", size(found.gateway_memory)),
        ("  cores of each", f"{found.gateway_cores}"),
        ("fold, memory", f"{size(found.fold_memory)}{fold_note}"),
        ("fold, cores", f"{found.fold_cores} in a storm, {found.fold_mean_cores:.1f} in the mean"),
        (f"event log ({log})", f"{size(found.event_log_day)} a day, {size(found.event_log_disk)} of disk"),
        ("tables", f"{size(found.tables_day)} a day, {size(found.tables_disk)} of disk"),
    ]
    if demand.event_log == "kafka":
        rows.append(("Kafka topic", "1 partition, 3 replicas, retention.ms=-1; the fold deletes what is in the tables"))
    rows += [(f"port {port} of {to}", f"from {peers} ({option})") for to, peers, port, option in _ports(demand)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    if demand.event_log == "sqlite" and not found.fits_one_machine:
        lines.append("One machine is not enough for this. Plan without --one-machine.")
    return "\n".join(lines)


def _ports(demand: Demand) -> list[tuple[str, str, int, str]]:
    places = ["gateway"] if demand.event_log == "sqlite" else list(_PORTS)
    return [(to, *entry) for to in places for entry in _PORTS[to]]


def size(size_bytes: int) -> str:
    """Return a size with two digits and a decimal unit, such as 370 MB or 1.2 GB."""
    if size_bytes < 1e9:
        return f"{max(1, round(size_bytes / 1e6, -1 if size_bytes > 1e8 else 0)):.0f} MB"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes < 1e10 else f"{size_bytes / 1e9:,.0f} GB"

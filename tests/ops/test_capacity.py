# SPDX-License-Identifier: Apache-2.0
"""What `routelake plan` plans against what the benchmarks measured."""

from __future__ import annotations

import re

import msgspec
import pytest

from dev.peers.routelake import ROOT
from dev.reference.sizes import demand
from ops import capacity
from ops.capacity import RESERVE, plan

NAMESERVER_HEARTBEATS_S = 38_217
"""Of the hour in which the constants were measured. Other hours of a shared machine are up to three times slower."""
REPORT = (ROOT / "reports" / "performance.md").read_text(encoding="utf-8")


def measured(bench: str, figure: str) -> float:
    """A figure of the benchmark report, in the unit that it has there."""
    found = re.search(rf"^\| {bench} \| {re.escape(figure)} \| ([\d.,]+) ", REPORT, re.MULTILINE)
    assert found is not None, (bench, figure)
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize(("groups", "topics", "rows"), [(300, 10_000, "3,000,000"), (1_000, 10_000, "10,000,000")])
def test_a_gateway_has_the_reserve_over_what_was_measured(groups: int, topics: int, rows: str) -> None:
    resident = measured("cold-start", f"{rows} rows, resident") * 1e9
    assert 0.95 <= plan(demand(groups, topics)).gateway_memory / (RESERVE * resident) <= 1.25


def test_log_and_tables_of_twenty_brokers_are_those_of_the_idle_bench() -> None:
    # brokers of the bench only send heartbeats, and change nothing
    idle = msgspec.structs.replace(demand(20, 50), changes=0, gateways=1)
    found = plan(idle)
    registrations = idle.registrations_s * 86_400 * capacity.REGISTRATION_LOG_BYTES
    clocks = capacity.CLOCKS_A_DAY * capacity.HEARTBEAT_LOG_BYTES
    log = measured("idle", "event log, growth a day") * 1e6
    assert found.event_log_day - registrations == pytest.approx(log + clocks, rel=0.05)
    tables = measured("idle", "tables, growth a day") * 1e6
    epochs = measured("idle", "table commits a minute") * 1_440 / 2  # each commits to two tables
    planned = (found.tables_day - capacity.LIVENESS_CHECKPOINT_BYTES) / capacity.LIVENESS_COMMITS_A_DAY
    assert planned == pytest.approx(tables / epochs, rel=0.1)


def test_rates_are_those_of_the_acknowledge_bench() -> None:
    """For a machine on which the NameServer, measured in the same run, is as fast as it was with the constants."""
    nameserver = re.search(r"acknowledge \| heartbeat, durable .* in memory only: ([\d,]+)", REPORT)
    assert nameserver is not None
    speed = float(nameserver[1].replace(",", "")) / NAMESERVER_HEARTBEATS_S
    assert capacity.APPENDS_A_SECOND["sqlite"] <= measured("acknowledge", "heartbeat, durable") / speed
    assert capacity.APPENDS_A_SECOND["kafka"] <= measured("acknowledge", "heartbeat, Kafka, durable") / speed
    for log, figure in (("sqlite", "heartbeat, durable"), ("kafka", "heartbeat, Kafka, durable")):
        found = re.search(rf"acknowledge \| {figure} .*?(\d+) us/request in the gateway", REPORT)
        assert found is not None
        assert pytest.approx(float(found[1]) * 1e-6 * speed, rel=0.2) == capacity.HEARTBEAT_S[log]


def test_a_change_costs_what_the_grown_lake_shows() -> None:
    size = measured("growth", "size of the old lake") * 1e6
    assert pytest.approx(size / 100_000, rel=0.01) == capacity.CHANGE_BYTES


def test_more_of_anything_never_needs_less() -> None:
    base = demand(60, 2_000)
    for more in (
        demand(120, 2_000), demand(60, 4_000), msgspec.structs.replace(base, replicas=3), msgspec.structs.replace(base, clients=10**6),
        msgspec.structs.replace(base, changes=10**5), msgspec.structs.replace(base, heartbeat_interval_s=0.1), msgspec.structs.replace(base, history_days=300),
        msgspec.structs.replace(base, event_log_hours=240.0), msgspec.structs.replace(base, gateways=4),
    ):  # fmt: skip
        before, after = plan(base), plan(more)
        assert after.gateway_memory >= before.gateway_memory and after.fold_memory >= before.fold_memory
        assert after.event_log_disk >= before.event_log_disk and after.tables_disk >= before.tables_disk
        assert after.gateways * after.gateway_cores >= before.gateways * before.gateway_cores


def test_brokers_that_only_register_have_few_events() -> None:
    quiet = plan(msgspec.structs.replace(demand(300, 100), heartbeat_interval_s=0.0))
    assert quiet.events_s == 10
    assert quiet.event_log_day < plan(demand(300, 100)).event_log_day / 10


def test_many_brokers_need_more_gateways_and_no_single_machine() -> None:
    found = plan(demand(20_000, 10))
    assert found.gateways > 2 and not found.fits_one_machine
    assert found.gateways * capacity.APPENDS_A_SECOND["kafka"] >= RESERVE * found.events_s

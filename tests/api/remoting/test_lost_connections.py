# SPDX-License-Identifier: Apache-2.0
"""A cut network closes connections, too: with self-preservation a broker has a moment to come back (ADR 14)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipelines.fold.preservation import CLOSED_GRACE_MS
from schemas.events import ChannelClosed, decode
from tests.examples.parts import C1, register
from tests.model.client import RemotingClient
from tests.support.local import LocalGateway, LocalLake
from tests.support.loops import until

BROKERS = 8


def addr(number: int) -> str:
    return f"10.0.0.{number}:10911"


@contextmanager
def brokers(folder: Path, now_ms: list[int], **settings: Any) -> Iterator[tuple[LocalGateway, list[RemotingClient]]]:
    """Brokers, each on a connection of its own, and a log whose time the test moves."""
    with (
        LocalLake(folder, clock=lambda: now_ms[0]) as lake,
        lake.gateway(clock_interval_s=0.02, preservation_interval_s=0.01, **settings) as gateway,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(gateway.connect()) for _ in range(BROKERS)]
        for number, client in enumerate(clients):
            client.call(register(f"broker-{number}", addr(number)).request())
        until(lambda: len(routed(gateway)) == BROKERS)
        yield gateway, clients


def routed(gateway: LocalGateway) -> set[str]:
    return {row.broker_name for row in gateway.gateway.at_head.view.all_live_rows()}


def closed(gateway: LocalGateway) -> list[ChannelClosed]:
    events = (decode(record.payload) for record in gateway.log.read(1, max_records=100_000))
    return [event for event in events if isinstance(event, ChannelClosed)]


def is_on(gateway: LocalGateway) -> bool:
    return gateway.gateway.at_head.view.commit.preserve_time is not None


def test_without_it_a_lost_connection_removes_at_once(tmp_path: Path) -> None:
    with brokers(tmp_path, [1_800_000_000_000]) as (gateway, clients):
        for client in clients:
            client.close()
        until(lambda: not routed(gateway))
        assert {event.grace_ms for event in closed(gateway)} == {0}


def test_all_connections_lost_at_once_empty_nothing(tmp_path: Path) -> None:
    now_ms = [1_800_000_000_000]
    with brokers(tmp_path, now_ms, self_preservation_percent=15) as (gateway, clients):
        for client in clients[1:]:
            client.close()
        until(lambda: is_on(gateway))
        until(lambda: len(closed(gateway)) == BROKERS - 1)
        now_ms[0] += 600_000
        until(lambda: gateway.gateway.at_head.view.event_time.timestamp() * 1000 >= now_ms[0])
        assert len(routed(gateway)) == BROKERS
        with ExitStack() as stack:
            for number in range(BROKERS):
                client = stack.enter_context(gateway.connect())
                client.call(register(f"broker-{number}", addr(number)).request())
            until(lambda: not is_on(gateway))
            assert len(routed(gateway)) == BROKERS


def test_one_that_is_lost_leaves_after_its_grace(tmp_path: Path) -> None:
    now_ms = [1_800_000_000_000]
    with brokers(tmp_path, now_ms, self_preservation_percent=15) as (gateway, clients):
        clients[3].close()
        until(lambda: closed(gateway))
        assert [(event.cluster_name, event.grace_ms) for event in closed(gateway)] == [(C1, CLOSED_GRACE_MS)]
        now_ms[0] += CLOSED_GRACE_MS
        until(lambda: gateway.gateway.at_head.view.event_time.timestamp() * 1000 >= now_ms[0])
        assert len(routed(gateway)) == BROKERS
        now_ms[0] += 1
        until(lambda: len(routed(gateway)) == BROKERS - 1)
        assert not is_on(gateway)

# SPDX-License-Identifier: Apache-2.0
"""A cut network closes connections, too: with self-preservation a broker has a moment to come back (ADR 14)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.local import LocalGateway, LocalLake, config_of
from dev.support.loops import until
from nameserver.state_machine.preservation import CLOSED_GRACE_MS, EndReason
from schemas.events import Actor, ChannelClosed, PreserveEnd, decode
from schemas.outcomes import APPLIED
from tests.examples.parts import C1, register

BROKERS = 8


def addr(number: int) -> str:
    return f"10.0.0.{number}:10911"


@contextmanager
def brokers(folder: Path, now_ms: list[int], **settings: Any) -> Iterator[tuple[LocalGateway, list[RemotingClient]]]:
    """Brokers, each on a connection of its own, and a log with a time that the test moves."""
    with (
        LocalLake(folder, clock=lambda: now_ms[0]) as lake,
        lake.gateway(clock_interval_s=0.02, preservation_interval_s=0.01, **settings) as gateway,
        ExitStack() as stack,
    ):
        yield gateway, connected(gateway, stack)


def connected(gateway: LocalGateway, stack: ExitStack) -> list[RemotingClient]:
    clients = [stack.enter_context(gateway.connect()) for _ in range(BROKERS)]
    for number, client in enumerate(clients):
        client.call(register(f"broker-{number}", addr(number)).request())
    until(lambda: len(routed(gateway)) == BROKERS)
    return clients


def routed(gateway: LocalGateway) -> set[str]:
    return {name for (name, _, _), _ in gateway.gateway.live_view.view.all_live_rows()}


def closed(gateway: LocalGateway) -> list[ChannelClosed]:
    events = (decode(record.payload) for record in gateway.log.read(1, max_records=100_000))
    return [event for event in events if isinstance(event, ChannelClosed)]


def gateway_time_ms(gateway: LocalGateway) -> float:
    return gateway.gateway.live_view.view.event_time.timestamp() * 1000


def is_on(gateway: LocalGateway) -> bool:
    return gateway.gateway.live_view.view.commit.preserve_time is not None


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
        until(lambda: gateway_time_ms(gateway) >= now_ms[0])
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
        until(lambda: gateway_time_ms(gateway) >= now_ms[0])
        assert len(routed(gateway)) == BROKERS
        now_ms[0] += 1
        until(lambda: len(routed(gateway)) == BROKERS - 1)
        assert not is_on(gateway)


def test_a_pause_is_the_logs_and_not_a_gateways(tmp_path: Path) -> None:
    """Another one sees it, with the option or without; it outlives who began it, and anybody may end it."""
    now_ms = [1_800_000_000_000]
    with LocalLake(tmp_path, clock=lambda: now_ms[0]) as lake, ExitStack() as stack:
        settings: dict[str, Any] = {"clock_interval_s": 0.02, "preservation_interval_s": 0.01}
        one = stack.enter_context(lake.gateway(gateway_id="one", self_preservation_percent=15, **settings))
        two = stack.enter_context(lake.gateway(gateway_id="two", **settings))
        for client in connected(one, stack):
            client.close()
        until(lambda: is_on(one) and is_on(two))
        one.stop()
        now_ms[0] += 600_000
        until(lambda: gateway_time_ms(two) >= now_ms[0])
        two.loop.run(two.gateway.preservation.decide())
        assert is_on(two) and len(routed(two)) == BROKERS
        one.start()
        assert is_on(one) and len(routed(one)) == BROKERS
        end = PreserveEnd(actor=Actor(gateway="two", via="http"), grace_ms=0, reason=EndReason.REQUESTED)
        receipt = two.loop.run(two.gateway.propose(end, None))
        assert receipt.verdict == APPLIED
        until(lambda: not is_on(one) and not routed(one))
        assert not routed(two)


def test_over_the_wire_the_switch_takes_a_share(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(allow_config_update=True) as gateway,
        gateway.connect() as client,
    ):
        assert "selfPreservationPercent" not in config_of(client)
        for wrong in (b"100", b"-1", b"all", b"1.5", b""):
            answer = client.call(Request(codes.UPDATE_NAMESRV_CONFIG, {}, b"selfPreservationPercent=" + wrong))
            assert (answer.code, "expected a share" in (answer.remark or "")) == (codes.SYSTEM_ERROR, True)
        body = b"selfPreservationPercent=15"
        assert client.call(Request(codes.UPDATE_NAMESRV_CONFIG, {}, body)).code == codes.SUCCESS
        assert config_of(client)["selfPreservationPercent"] == "15"
        assert gateway.gateway.settings.self_preservation_percent == 15


def test_a_broker_whose_address_another_one_has_expires_in_a_pause(tmp_path: Path) -> None:
    now_ms = [1_800_000_000_000]
    with brokers(tmp_path, now_ms, self_preservation_percent=15) as (gateway, clients), ExitStack() as stack:
        for client in clients[1:]:
            client.close()
        until(lambda: is_on(gateway))
        until(lambda: len(closed(gateway)) == BROKERS - 1)
        now_ms[0] += 600_000
        reborn = stack.enter_context(gateway.connect())
        reborn.call(register("reborn", addr(3)).request())
        kept = {f"broker-{number}" for number in range(BROKERS) if number != 3} | {"reborn"}
        until(lambda: routed(gateway) == kept)
        assert is_on(gateway)


def test_brokers_that_come_back_under_other_names_are_no_cut(tmp_path: Path) -> None:
    now_ms = [1_800_000_000_000]
    with (
        LocalLake(tmp_path, clock=lambda: now_ms[0]) as lake,
        lake.gateway(clock_interval_s=0.02, preservation_interval_s=0.01, self_preservation_percent=15) as gateway,
        ExitStack() as stack,
    ):
        clients = connected(gateway, stack)
        now_ms[0] += 59_000
        others = [stack.enter_context(gateway.connect()) for _ in range(BROKERS)]
        for passed_ms in (0, 2_000, 30_000, 29_000, 1):
            now_ms[0] += passed_ms
            for number, other in enumerate(others):
                other.call(register(f"renamed-{number}", addr(number)).request())
            until(lambda: gateway_time_ms(gateway) >= now_ms[0])
            gateway.loop.run(gateway.gateway.preservation.decide())
            assert not is_on(gateway)
        until(lambda: routed(gateway) == {f"renamed-{number}" for number in range(BROKERS)})
        assert len(clients) == BROKERS

# SPDX-License-Identifier: Apache-2.0
"""A peer that uses all its rights at once, at a real gateway process, while 300 brokers heartbeat each second.

No other client sees a refusal. Refusals of the peer are counted by quota, and log and memory grow within bounds. The
rates are lowered so that they are reached within seconds. `test_quotas.py` measures the default rates over an hour.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dev.peers.routelake import Routelake
from eventlog.open import open_log
from schemas.events import RegisterBroker, decode
from tests.e2e.hostile import Memory, in_bounded_time, over_quotas, processor_s
from tests.e2e.quota_attacks import hostile
from tests.e2e.quota_peers import Peers, Seen, alone, honest

SYSTEM_BUSY: Final = 2
LIMITS: Final = (
    "connections=400,reads-per-s=50:200,broker-requests-per-s=400:800,admin-requests-per-s=20:100,heartbeat-mb-per-h=30:5,"
    "broker-mb-per-h=20:20,admin-mb-per-h=1:2,new-names-per-min=60:800,brokers=350,topics=10000"
)
GROWTH_BYTES: Final = 30_000_000
"""Of the log: what the honest write, and the hostile peer's 27 MB at most."""

pytestmark = pytest.mark.deep


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Routelake]:
    gateway = Routelake(tmp_path / "data", "gateway", ("--quota", LIMITS)).start(wait_ready_s=None)
    try:
        gateway.wait_listening()
        yield gateway
    finally:
        gateway.stop()


@in_bounded_time
def test_a_flood_over_the_quotas_does_not_slow_other_clients(gateway: Routelake, during_s: float) -> None:
    log = gateway.data_dir / "events.db"
    before = alone(gateway.remoting_port, min(30.0, during_s))
    with Peers(honest, gateway.remoting_port) as fleet:
        had_bytes, had_s = log_bytes(log), processor_s(gateway)
        with Memory(gateway) as memory, Peers(hostile, gateway.remoting_port) as attackers:
            time.sleep(during_s)
        grown = log_bytes(log) - had_bytes
        ran_s, waited_s = (now - then for now, then in zip(processor_s(gateway), had_s, strict=True))
        found = over_quotas(gateway)
    seen: Seen = fleet.saw
    answers: dict[str, dict[int, int]] = attackers.saw
    print(
        f"{seen.answers} honest answers, p99 {before.p99s_ms} ms before, {seen.p99s_ms} ms meanwhile; log grew {grown / 1e6:.1f} MB"
    )
    print(f"memory {memory.before / 1e6:.0f}, at most {memory.most / 1e6:.0f} MB; refused {found}; {answers}")
    print(f"the gateway had {ran_s:.1f} s of processor, and waited {waited_s:.1f} s for it")
    seen.check()
    if during_s > 60:
        seen.check_against(before)
        assert found["connections"] > 0
    for name in ("kv", "deletions", "lists"):
        assert answers[name][SYSTEM_BUSY] > 0, (name, answers)
    assert memory.most - memory.before < 256_000_000
    assert grown < GROWTH_BYTES * max(1.0, during_s / 60)
    registered = {event.broker_name for event in events(gateway) if isinstance(event, RegisterBroker)}
    assert len([name for name in registered if name.startswith("hostile")]) < 350


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob("events.db") if file.exists())


def events(gateway: Routelake) -> list[object]:
    assert gateway.stop() == 0
    log = open_log(f"sqlite://{gateway.data_dir / 'events.db'}")
    try:
        return [decode(record.payload) for record in log.read(0, max_records=1_000_000)]
    finally:
        log.close()

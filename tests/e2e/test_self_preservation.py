# SPDX-License-Identifier: Apache-2.0
"""Twenty brokers, nineteen of which stop their heartbeats: gateways with and without self-preservation in turn.

`tests/api/http/test_self_preservation.py` has the rules, with a time that the test moves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.http_api import broker

pytestmark = pytest.mark.deep

BROKERS = range(20)
TIMEOUT_MS = 12_000


def register(gateway: Routelake, numbers: Iterable[int]) -> None:
    for number in numbers:
        registration = broker(f"b{number}", host=number, topics=["orders", f"t{number}"])
        gateway.send("POST", "/v1/brokers/register", {**registration, "heartbeatTimeoutMillis": TIMEOUT_MS})


def routed(gateway: Routelake) -> set[int]:
    return {int(data["brokerName"][1:]) for data in gateway.get("/v1/topics/orders/route")["brokerDatas"]}


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Routelake]:
    """A gateway without a fold, which it needs no more than brokers do."""
    gateway = Routelake(folder, "gateway", options).start(wait_ready_s=None)
    try:
        gateway.wait_listening()
        yield gateway
        gateway.stop()
    finally:
        gateway.kill()


def test_silent_brokers_stay_routed_until_their_heartbeats_return(tmp_path: Path) -> None:
    with running(tmp_path / "on", "--self-preservation", "15%") as keeping, running(tmp_path / "off") as plain:
        for gateway in (keeping, plain):
            register(gateway, BROKERS)
        silent_since_s = time.monotonic()

        def only_one_talks(gateway: Routelake) -> set[int]:
            register(keeping, [0])
            register(plain, [0])
            return routed(gateway)

        wait_until(lambda: only_one_talks(plain) == {0}, 120, "the silent ones to leave where it is off", 0.5)
        assert time.monotonic() - silent_since_s > TIMEOUT_MS / 1000
        assert only_one_talks(keeping) == set(BROKERS)
        state = keeping.get("/v1/self-preservation")
        assert (state["percent"], state["isOn"], state["live"], state["silent"]) == (15, True, 20, 19)
        ready = keeping.get("/readyz")
        assert ready["ready"] and "19 of 20 have no heartbeats" in ready["checks"]["selfPreservation"]["reason"]
        assert "selfPreservation" not in plain.get("/readyz")["checks"]

        def back() -> bool:
            register(keeping, BROKERS)
            return not keeping.get("/v1/self-preservation")["isOn"]

        wait_until(back, 60, "the pause to end by itself", 0.5)
        assert routed(keeping) == set(BROKERS)
        assert "reason=RECOVERED" in keeping.log_tail()

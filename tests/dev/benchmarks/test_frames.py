# SPDX-License-Identifier: Apache-2.0
"""Connections that the benches hold open."""

from __future__ import annotations

from dev.benchmarks.harness.frames import Link, brokers
from dev.peers.java import wait_until
from dev.support.fake_broker import FakeBroker
from schemas.codes import RequestCode


def test_a_kept_connection_sends_heartbeats_that_nobody_answers() -> None:
    (broker,) = brokers(1, 0)
    with FakeBroker() as server:
        with Link(int(server.address.rpartition(":")[2])) as link:
            link.keep_alive(broker, 0.01)
            link.keep_alive(broker, 0.01)  # once is enough
            wait_until(lambda: len(server.received()) >= 3, 60, "three heartbeats")
        heartbeat = server.received()[0]
    assert heartbeat.code == RequestCode.BROKER_HEARTBEAT
    assert heartbeat.ext is not None and heartbeat.ext["brokerName"] == broker.config.broker_name

# SPDX-License-Identifier: Apache-2.0
"""Stock RocketMQ over TLS and mutual TLS: a broker, mqadmin, a producer and a consumer, as their own switches say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from clients.tls import ClientTls
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.broker import StockBroker
from dev.peers.java import wait_until
from dev.peers.java_client import JavaClient, bodies
from dev.peers.java_tls import java_tls
from dev.peers.rocketmq import StockNameServer
from dev.peers.routelake import Routelake
from dev.support.certificates import Authority, Pair
from dev.support.rocketmq import mqadmin

pytestmark = pytest.mark.jvm

TOPIC = "orders"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls-stock")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "ca")


@pytest.fixture(scope="module")
def routelake(authority: Authority, folder: Path) -> Iterator[Routelake]:
    """A gateway that accepts neither plain connections nor clients without a certificate."""
    pair = authority.issue("nameserver")
    options = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-mode", "enforcing")
    running = Routelake(folder / "data", "gateway", (*options, "--tls-client-ca", str(authority.path)))
    try:
        running.start(wait_ready_s=None).wait_listening()
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def files(pair: Pair) -> tuple[Path, Path]:
    return pair.cert, pair.key


@pytest.mark.deep
@pytest.mark.parametrize("release", ["5.5.0", "4.9.7"])
def test_stock_peers(routelake: Routelake, authority: Authority, folder: Path, release: str) -> None:
    """A broker registers, mqadmin makes a topic, messages go through; who shows no certificate gets nowhere."""
    known = java_tls(
        folder / "known.properties",
        ca=authority.path,
        server=files(authority.issue("broker")),
        client=files(authority.issue("ops")),
    )
    unknown = java_tls(folder / "unknown.properties", ca=authority.path)
    stranger = Authority(folder / "elsewhere", "elsewhere").issue("ops")
    foreign = java_tls(folder / "foreign.properties", ca=authority.path, client=files(stranger))
    address, name = routelake.namesrv_addr, f"broker-{release[0]}"
    broker = StockBroker(address, name=name, release=release, java_options=known)
    with broker, JavaClient(release, known) as java:
        own = authority.client(authority.issue("watcher"))
        with RemotingClient("127.0.0.1", routelake.remoting_port, tls=own) as watcher:
            clusters = Request(codes.GET_BROKER_CLUSTER_INFO)
            wait_until(lambda: name.encode() in watcher.call(clusters).body, 60, "the broker to be registered")
        topic = f"{TOPIC}-{release[0]}"
        done = mqadmin(["updateTopic", "-b", broker.address, "-t", topic], address, release, java_options=known)
        assert "success" in done.stdout, done
        producer = java.producer(address, "producers", 500)
        assert producer.send(java.message(topic, "hello")).getSendStatus().toString() == "SEND_OK"
        consumer = java.consumer(address, "consumers", topic, 500)
        got: list[str] = []

        def take() -> list[str]:
            got.extend(bodies(consumer.poll(1000)))
            return got

        wait_until(take, 60, "the message")
        assert got == ["hello"]

        # What a stranger's certificate comes to does not depend on the release: once is enough.
        for options in (unknown, foreign, ()) if release == "4.9.7" else (unknown, ()):
            done = mqadmin(["clusterList"], address, release, java_options=options)
            assert name not in done.stdout, done
            assert re.search(
                "RemotingConnectException|RemotingSendRequest|RemotingTimeout|MQClient", done.stderr + done.stdout
            )
    said = routelake.log_tail(400)
    assert "reason=tls-handshake" in said
    assert "reason=not-encrypted" in said


@pytest.mark.deep
def test_permissive(authority: Authority, folder: Path) -> None:
    """While people migrate: a broker over TLS, without a certificate of its own, and mqadmin both ways."""
    pair = authority.issue("nameserver")
    encrypted = java_tls(folder / "plain-ca.properties", ca=authority.path, server=files(authority.issue("broker")))
    options = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    running = Routelake(folder / "permissive", "gateway", options)
    try:
        running.start(wait_ready_s=None).wait_listening()
        with StockBroker(running.namesrv_addr, java_options=encrypted):
            for way in (encrypted, ()):

                def listed(way: tuple[str, ...] = way) -> bool:
                    return "broker-a" in mqadmin(["clusterList"], running.namesrv_addr, java_options=way).stdout

                wait_until(listed, 60, "the broker to be listed")
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.mark.deep
def test_our_commands_at_a_stock_nameserver(authority: Authority, folder: Path) -> None:
    """Encrypted as stock encrypts."""
    options = java_tls(folder / "server.properties", server=files(authority.issue("stock")))
    tls = ClientTls(str(authority.path))

    async def registered(address: str) -> tuple[str, ...]:
        agent = BrokerAgent(BrokerConfig(broker_name="ours", broker_ip1="127.0.0.1", listen_port=0), [address], tls=tls)
        await agent.start()
        try:
            return tuple(str(result.error or "") for result in agent.registrar.last_results)
        finally:
            await agent.stop()

    with StockNameServer(java_options=options) as stock:
        assert asyncio.run(registered(stock.address)) == ("",)

# SPDX-License-Identifier: Apache-2.0
"""Each part a machine of its own, as far as a process can be: folders, addresses, and an end by SIGKILL, in turn.

A lake in versitygw, the log in a Kafka that asks who comes (SASL_SSL), two folds of which one stands by, three gateways
at three addresses; a stock broker, and RocketMQ's own producer and consumer. One fold's executors are on a standalone
Spark master's two workers, the other's are threads of its own (local[N]), in turn. Routes are asked for all the time,
and entries put: what was acknowledged has to be there in the end, in every gateway and in the tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pytest

from dev.model.client import ConnectionClosed
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.versitygw import NoVersityGwError, VersityGw
from dev.support.certificates import Authority
from dev.support.command import process
from dev.support.java_client import JavaConsumer, JavaProducer
from dev.support.rocketmq import StockBroker, mqadmin
from dev.support.secured_kafka import Properties, secured_kafka
from tests.e2e.scenario import route
from tests.e2e.test_clients_while_killed import Watch
from tests.e2e.test_spark_cluster import Cluster, running

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(3000)]

URL: Final = "s3://lake/prod/routes"
CLUSTER, BROKER, TOPIC = "far-cluster", "far-broker", "far-orders"
WAIT_S: Final = 600.0
"""For what a dozen JVMs on a busy machine do: nothing here is about how long it takes."""
GONE: Final = (OSError, HTTPException, ConnectionClosed)
"""What a process that was killed answers; HTTPError is an OSError."""


class Entries(threading.Thread):
    """Puts one entry after the other, at whichever gateway takes it, until it is stopped."""

    def __init__(self, gateways: Sequence[Routelake]) -> None:
        super().__init__(daemon=True)
        self._gateways = gateways
        self._is_over = threading.Event()
        self.acknowledged: list[str] = []
        self.refused = 0

    def run(self) -> None:
        number = 0
        while not self._is_over.wait(0.2):
            number += 1
            gateway = self._gateways[number % len(self._gateways)]
            try:
                put(gateway, str(number))
            except GONE:
                self.refused += 1
            else:
                self.acknowledged.append(str(number))

    def stop(self) -> None:
        self._is_over.set()
        self.join(60)


def put(gateway: Routelake, key: str) -> int:
    """The offset of an entry that was acknowledged."""
    return int(gateway.send("PUT", f"/v1/kv/entries/{key}", {"value": key})["offset"])


def entries(gateway: Routelake, query: str = "") -> set[str]:
    found: dict[str, str] = gateway.get(f"/v1/kv/entries{query}")["table"]
    return set(found)


class Deployment:
    """Folds and gateways, which all say the same but for their folders and addresses."""

    def __init__(self, folder: Path, stack: ExitStack, log: Sequence[str], cluster: Cluster) -> None:
        options = ("--lake", URL, *log)
        (folder / "shared").mkdir()
        self.folds = [
            Routelake(folder / "fold-1", "fold", (*options, *cluster.options, "--shared-dir", str(folder / "shared"))),
            Routelake(folder / "fold-2", "fold", (*options, "--standby")),
        ]
        self.gateways = [
            Routelake(folder / f"gateway-{number}", "gateway", options, host=f"127.0.0.1{number}")
            for number in (1, 2, 3)
        ]
        for one in (*self.folds, *self.gateways):
            stack.callback(self._end, one)
        first, standby = self.folds
        for one in (*self.gateways, first):
            one.start(wait_ready_s=None)
        wait_until(lambda: "took the lake" in first.log_path.read_text(), WAIT_S, "the first fold to take the lake")
        standby.start(wait_ready_s=None)
        for gateway in self.gateways:
            gateway.wait_ready(WAIT_S)

    @staticmethod
    def _end(one: Routelake) -> None:
        one.kill()
        if one.log_path.exists():
            print(f"--- {one.data_dir.name}\n{one.log_tail(15)}")

    @property
    def namesrv_addr(self) -> str:
        return ";".join(gateway.namesrv_addr for gateway in self.gateways)

    def answers(self) -> None:
        """Of a client that goes from one address to the next. Raises where none has the route."""
        why = []
        for gateway in self.gateways:
            try:
                found = route(gateway.namesrv_addr, TOPIC)
            except GONE as error:
                why.append(f"{gateway.host}: {error!r}")
                continue
            assert found is not None, f"{gateway.host} has no route"
            return
        raise AssertionError(f"no gateway answers: {why}")

    def goes_on(self) -> float:
        """Wait until an entry that is put now is in the tables, as every gateway sees them; how long that took."""
        began_s = time.monotonic()
        offsets: list[int] = []

        def taken() -> bool:
            try:
                offsets.append(put(self.gateways[0], "goes-on"))
            except GONE:
                return False
            return True

        wait_until(taken, WAIT_S, "an entry to be acknowledged")

        def shown(gateway: Routelake) -> bool:
            try:
                return bool(gateway.get(f"/v1/kv/entries/goes-on?reads=committed&wait_for={offsets[-1]}"))
            except GONE:
                return False

        for gateway in self.gateways:
            wait_until(lambda gateway=gateway: shown(gateway), WAIT_S, f"the entry in the tables at {gateway.host}")
        return time.monotonic() - began_s


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def test_routes_survive_a_kill_of_each_process_in_turn(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s {what}", flush=True)

    with ExitStack() as stack:
        try:
            store = stack.enter_context(VersityGw())
        except NoVersityGwError as error:
            pytest.skip(str(error))
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "kafka").mkdir()
        kafka = stack.enter_context(secured_kafka(authority, tmp_path / "kafka"))
        file = Properties(tmp_path, authority)()
        log = ("--event-log", f"kafka://127.0.0.1:{kafka.sasl_port}/events", "--event-log-config", str(file))
        cluster = stack.enter_context(running(Cluster(tmp_path)))
        told("a store, Kafka and a Spark cluster are there")
        all_parts = Deployment(tmp_path, stack, log, cluster)
        gateways = all_parts.gateways
        told("gateways and folds are there")
        stack.enter_context(StockBroker(all_parts.namesrv_addr, CLUSTER, BROKER))
        wait_until(lambda: route(gateways[2].namesrv_addr, "TBW102") is not None, WAIT_S, "the broker")
        told("a broker is")

        def has_topic() -> bool:
            mqadmin(["updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4"], gateways[1].namesrv_addr)
            return route(gateways[1].namesrv_addr, TOPIC) is not None

        wait_until(has_topic, WAIT_S, "mqadmin to make a topic")  # it gives a busy machine five seconds
        for gateway in gateways:
            wait_until(lambda gateway=gateway: route(gateway.namesrv_addr, TOPIC) is not None, WAIT_S, "its topic")
        consumer = stack.enter_context(JavaConsumer(all_parts.namesrv_addr, TOPIC))
        producer = stack.enter_context(JavaProducer(all_parts.namesrv_addr, TOPIC))
        watch = stack.enter_context(Watch(all_parts.answers))
        told("producer and consumer are")
        entering = Entries(gateways)
        entering.start()
        stack.callback(entering.stop)

        def after(what: str) -> None:
            took_s = all_parts.goes_on()
            assert (producer.error, consumer.error, watch.error) == (None, None, None), what
            acknowledged = len(entering.acknowledged)
            told(f"{what}: an entry is in the tables after {took_s:.1f} s; {acknowledged} acknowledged")

        after("at first")
        first, second = all_parts.folds
        wait_until(lambda: "standing by" in second.log_path.read_text(), WAIT_S, "the standby to wait")
        one, two = cluster.workers
        assert one.kill_executors() + two.kill_executors() >= 1
        after("all executors are killed")
        one.kill()
        after("a worker is killed")
        one.start()
        first.kill()
        after("the fold is killed, the standby goes on with executors of its own")
        for number, gateway in enumerate(gateways, 1):
            gateway.kill()
            all_parts.answers()
            gateway.start(wait_ready_s=None)
            gateway.wait_listening(WAIT_S)
            after(f"gateway {number} is killed")
        kafka.process.sigkill()
        all_parts.answers()
        kafka.start()
        after("Kafka is killed")
        store.kill()
        all_parts.answers()
        store.start()
        after("the store is killed")
        second.kill()
        first.start(wait_ready_s=None)
        after("the second fold is killed, the first one is back on the cluster")
        two.kill()
        after("the other worker is killed")
        cluster.master.kill()
        after("the master is killed")

        entering.stop()
        sent = len(producer.sent)
        wait_until(lambda: len(producer.sent) > sent or producer.error is not None, WAIT_S, "one more message")
        producer.stop()
        wait_until(lambda: set(consumer.received) >= set(producer.sent), WAIT_S, "all messages to arrive")
        all_parts.goes_on()
        assert (producer.error, consumer.error, watch.error) == (None, None, None)
        acknowledged = set(entering.acknowledged)
        told(f"{len(acknowledged)} acknowledged, {entering.refused} refused; {watch.looks} looks, {sent} messages")
        for gateway in gateways:
            assert acknowledged <= entries(gateway), gateway.host
            assert acknowledged <= entries(gateway, "?reads=committed"), gateway.host
        assert len(acknowledged) > 50
        assert watch.looks > 50
        assert first.stop() == 0
        proof = process("history", "verify", "--data-dir", tmp_path, "--lake", URL, *log)
        assert proof.returncode == 0, proof.stdout + proof.stderr
        told(proof.stdout)

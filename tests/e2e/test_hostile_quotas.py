# SPDX-License-Identifier: Apache-2.0
"""A peer that does all at once what one may do, to a real gateway process, while 300 brokers heartbeat each second.

Nobody else sees a refusal. What the peer is refused is counted by its quota; log and memory grow within bounds. The rates
are lowered so that they are met within seconds; what the defaults come to in an hour is measured in `test_quotas.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import statistics
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from peers.routelake import Routelake
from pipelines.log.open import open_log
from schemas.events import RegisterBroker, decode
from tests.e2e.hostile import Memory, in_bounded_time, read_answer, registration
from tests.model import codes
from tests.model.client import decode_frame, encode_frame

BROKERS: Final = 300
HOSTILE: Final = "127.0.0.9"
SYSTEM_BUSY: Final = 2
LIMITS: Final = (
    "connections=400,reads-per-s=50:200,broker-requests-per-s=400:800,admin-requests-per-s=20:100,heartbeat-mb-per-h=30:5,"
    "broker-mb-per-h=20:20,admin-mb-per-h=1:2,new-names-per-min=60:800,brokers=350,topics=10000"
)
GROWTH_BYTES: Final = 30_000_000
"""Of the log: what the honest write, and the hostile peer's 27 MB at most."""

pytestmark = pytest.mark.deep

Frames = Iterator[bytes]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Routelake]:
    gateway = Routelake(tmp_path / "data", "gateway", ("--quota", LIMITS)).start(wait_ready_s=None)
    try:
        gateway.wait_listening()
        yield gateway
    finally:
        gateway.stop()


class Fleet:
    """Honest brokers at one address: each registers and heartbeats over a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._over = threading.Event()
        self.registered = threading.Event()
        self.answers: Counter[int] = Counter()
        self.took_s: list[float] = []
        self.errors: list[BaseException] = []

    def __enter__(self) -> Fleet:
        self._thread.start()
        assert self.registered.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    async def _run(self) -> None:
        self._ready = 0
        done = await asyncio.gather(*(self._broker(number) for number in range(BROKERS)), return_exceptions=True)
        self.errors += [found for found in done if found is not None]
        self.registered.set()

    async def _broker(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        name, addr = f"honest-{number}", f"10.1.{number // 250}.{number % 250}:10911"
        fields = {"brokerName": name, "brokerAddr": addr, "clusterName": "c"}
        register, heartbeat = registration(name, addr, 1, 20), encode_frame(codes.BROKER_HEARTBEAT, fields)
        await self._ask(reader, writer, register)
        self._ready += 1
        if self._ready == BROKERS:
            self.registered.set()
        for round_number in itertools.count(1):
            if self._over.is_set():
                break
            await asyncio.sleep(0.5 + number / BROKERS)
            began = time.monotonic()
            await self._ask(reader, writer, register if round_number % 5 == 0 else heartbeat)
            self.took_s.append(time.monotonic() - began)
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        self.answers[decode_frame(await reader.readexactly(size)).header["code"]] += 1


def new_brokers() -> Frames:
    for number in itertools.count():
        yield registration(f"hostile-{number}", f"10.6.{number >> 8 & 255}.{number & 255}:1", 1, 3)


def more_topics() -> Frames:
    for number in itertools.count(1):
        yield registration("hostile", "10.7.0.1:1", number, 200 * number)


def come_and_go() -> Frames:
    who = {"brokerName": "hostile-b", "brokerAddr": "10.7.0.2:1", "clusterName": "c", "brokerId": "0"}
    for number in itertools.count(1):
        yield registration("hostile-b", "10.7.0.2:1", number, 100)
        yield encode_frame(codes.UNREGISTER_BROKER, who)


def heartbeats() -> Frames:
    who = {"brokerName": "nobody", "brokerAddr": "10.7.0.3:1", "clusterName": "c"}
    while True:
        yield encode_frame(codes.BROKER_HEARTBEAT, who)


def kv() -> Frames:
    for number in itertools.count():
        fields = {"namespace": "n", "key": f"k{number % 400}"}
        yield encode_frame(codes.PUT_KV_CONFIG, {**fields, "value": str(number) * 1000})
        yield encode_frame(codes.DELETE_KV_CONFIG, fields)


def deletions() -> Frames:
    for number in itertools.count():
        yield encode_frame(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": f"never-was-{number}"})


def single_topics() -> Frames:
    for number in itertools.count():
        queue = {"brokerName": "honest-0", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
        yield encode_frame(
            codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": f"t-{number}"}, json.dumps({"queueDatas": [queue]}).encode()
        )


def lists() -> Frames:
    while True:
        yield encode_frame(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})


class Attackers:
    """One thread for each kind, from an address of their own; whoever is cut off comes back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        kinds = (new_brokers, more_topics, come_and_go, heartbeats, kv, deletions, single_topics, lists)
        self.answers: dict[str, Counter[int]] = {kind.__name__: Counter() for kind in kinds}
        self._threads = [threading.Thread(target=self._ask, args=(kind,)) for kind in kinds]
        self._threads.append(threading.Thread(target=self._connect))

    def __enter__(self) -> Attackers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, kind: Callable[[], Frames]) -> None:
        frames = kind()
        while not self._over.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), 30, (HOSTILE, 0)) as connection,
            ):
                while not self._over.is_set():
                    connection.sendall(b"".join(itertools.islice(frames, 8)))
                    for _ in range(8):
                        answer = read_answer(connection)
                        if not answer:
                            raise ConnectionError
                        self.answers[kind.__name__][decode_frame(answer[4:]).header["code"]] += 1

    def _connect(self) -> None:
        """Connections that say nothing, more than one may have."""
        with contextlib.ExitStack() as held:
            while not self._over.wait(0.01):
                for _ in range(50):
                    with contextlib.suppress(OSError):
                        found = socket.create_connection(("127.0.0.1", self._port), 30, (HOSTILE, 0))
                        held.enter_context(found)
                if self._over.wait(0.5):
                    return


@in_bounded_time
def test_nobody_else_notices(gateway: Routelake, during_s: float) -> None:
    log = gateway.data_dir / "events.db"
    with Fleet(gateway.remoting_port) as fleet:
        before = log_bytes(log)
        with Memory(gateway) as memory, Attackers(gateway.remoting_port) as attackers:
            time.sleep(during_s)
        grown = log_bytes(log) - before
        found = refused(gateway)
    assert not fleet.errors, fleet.errors[0]
    assert set(fleet.answers) == {codes.SUCCESS}
    assert fleet.answers[codes.SUCCESS] > BROKERS
    p99_ms = 1000 * statistics.quantiles(fleet.took_s, n=100)[98]
    print(f"{sum(fleet.answers.values())} honest answers, p99 {p99_ms:.1f} ms; log grew {grown / 1e6:.1f} MB; {found}")
    print({name: dict(answers) for name, answers in attackers.answers.items()})
    if during_s > 60:
        assert p99_ms < 50
    for name in ("kv", "deletions", "lists"):
        assert attackers.answers[name][SYSTEM_BUSY] > 0, (name, attackers.answers)
    assert found["connections"] > 0
    assert memory.most - memory.before < 256_000_000
    assert grown < GROWTH_BYTES * max(1.0, during_s / 60)
    registered = {event.broker_name for event in events(gateway) if isinstance(event, RegisterBroker)}
    assert len([name for name in registered if name.startswith("hostile")]) < 350


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob("events.db") if file.exists())


def refused(gateway: Routelake) -> dict[str, float]:
    with socket.create_connection(("127.0.0.1", gateway.http_port), 60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\r\n\r\n")[2].decode()
    return {
        sample.labels["quota"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "routelake_quota_refused_total" and sample.value
    }


def events(gateway: Routelake) -> list[object]:
    assert gateway.stop() == 0
    log = open_log(f"sqlite://{gateway.data_dir / 'events.db'}")
    try:
        return [decode(record.payload) for record in log.read(0, max_records=1_000_000)]
    finally:
        log.close()

# SPDX-License-Identifier: Apache-2.0
"""Hostile clients and honest peers of a real gateway process, and their effect on the gateway's memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev.model import codes
from dev.model.client import encode_frame
from dev.peers.java import wait_until
from dev.peers.procfs import memory_bytes
from dev.peers.routelake import Routelake
from eventlog.open import open_log
from schemas.events import decode

MIB: Final = 1024 * 1024
SHORT_S: Final = 6.0
SHORT_PROCESSOR_S: Final = 2.5
"""Of the gateway's process. Planted defects of its bounds are found after so much work."""
LONG_S: Final = 600.0
REGISTER_TIMEOUT_S: Final = 24.0
"""BrokerConfig.registerBrokerTimeoutMills."""
GROWTH_BYTES: Final = 256_000_000

in_bounded_time = pytest.mark.parametrize(
    "during_s",
    [
        pytest.param(SHORT_S, id="short"),
        pytest.param(LONG_S, id="ten-minutes", marks=[pytest.mark.deep, pytest.mark.timeout(LONG_S + 300)]),
    ],
)


class Broker:
    """An honest broker: registers, again and again, over one connection."""

    def __init__(self, gateway: Routelake, topics: int = 8_000) -> None:
        self._topics = topics
        self._port = gateway.remoting_port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="honest-broker")
        self.answered: list[float] = []
        """How long each registration took, seconds."""
        self.error: BaseException | None = None

    def __enter__(self) -> Broker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(REGISTER_TIMEOUT_S + 10)

    def check(self) -> None:
        assert self.error is None, f"after {len(self.answered)} registrations: {self.error!r}"
        assert self.answered
        assert max(self.answered) < REGISTER_TIMEOUT_S

    def _run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self._port), REGISTER_TIMEOUT_S) as connection:
                for number in itertools.count(1):
                    began = time.monotonic()
                    for segment in segments(registration("honest", "10.9.9.9:10911", number, self._topics)):
                        connection.sendall(segment)
                        time.sleep(0.002)
                    if not read_answer(connection):
                        raise ConnectionError("closed by the gateway")
                    self.answered.append(time.monotonic() - began)
                    if self._stop.wait(0.05):
                        return
        except BaseException as error:
            self.error = error


def registration(
    name: str, addr: str, counter: int, topics: int, *, body: bytes | None = None, more: dict[str, str] | None = None
) -> bytes:
    """The frame of a REGISTER_BROKER by a 5.x broker."""
    if body is None:
        body = registration_body(counter, topics)
    fields = {
        "brokerAddr": addr,
        "brokerId": "0",
        "brokerName": name,
        "clusterName": "c",
        "compressed": "false",
        "haServerAddr": "10.0.0.1:10912",
        **(more or {}),
    }
    return encode_frame(codes.REGISTER_BROKER, fields, body, version=513, opaque=counter)


def registration_body(counter: int, topics: int) -> bytes:
    table = {
        name: {"perm": 6, "readQueueNums": 8, "topicName": name, "topicSysFlag": 0, "writeQueueNums": 8}
        for name in (f"topic-of-an-ordinary-length-{number:06d}" for number in range(topics))
    }
    version = {"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def segments(frame: bytes, size: int = 64 * 1024) -> Iterator[bytes]:
    for at in range(0, len(frame), size):
        yield frame[at : at + size]


def read_answer(connection: socket.socket) -> bytes:
    """One frame; b"" when the gateway has closed."""
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        piece = connection.recv(min(1 << 20, wanted - len(received)))
        if not piece:
            return b""
        received += piece
        if len(received) == 4:
            wanted = 4 + struct.unpack(">i", received)[0]
    return bytes(received)


def own_memory_bytes(gateway: Routelake) -> int:
    """Without the pages of libraries' files, which come in when code first runs: 57 MB of deltalake's and pyarrow's."""
    assert gateway.process is not None
    return memory_bytes(gateway.process.pid, "RssAnon")


def processor_s(gateway: Routelake) -> tuple[float, float]:
    """What the gateway's process has had of a processor, and how long it has waited for one: on a busy machine, the latter is
    in what others wait for it."""
    assert gateway.process is not None
    ran_ns, waited_ns, _ = Path(f"/proc/{gateway.process.pid}/schedstat").read_text().split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def attacked(gateway: Routelake, during_s: float) -> None:
    """Let attacks go on for so long. A short attack ends before, once the gateway has had `SHORT_PROCESSOR_S` for it."""
    ends_s, began_s = time.monotonic() + during_s, processor_s(gateway)[0]
    while time.monotonic() < ends_s:
        time.sleep(0.05)
        if during_s == SHORT_S and processor_s(gateway)[0] - began_s >= SHORT_PROCESSOR_S:
            return


class Memory:
    """Watches the gateway's memory: at the start, and at most."""

    def __init__(self, gateway: Routelake) -> None:
        self._gateway = gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = self.most = own_memory_bytes(gateway)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            with contextlib.suppress(OSError):
                self.most = max(self.most, own_memory_bytes(self._gateway))

    def check(self, left_bytes: int = 64_000_000) -> None:
        """Grown by little, and given back but for so much."""
        grown = self.most - self.before
        print(f"memory: {self.before / 1e6:.0f} MB before, {self.most / 1e6:.0f} MB at most")
        assert grown < GROWTH_BYTES, f"grown by {grown / 1e6:.0f} MB"
        wait_until(
            lambda: own_memory_bytes(self._gateway) - self.before < left_bytes,
            60,
            f"memory to be given back; it was {self.before / 1e6:.0f} and {self.most / 1e6:.0f} MB, "
            f"is {own_memory_bytes(self._gateway) / 1e6:.0f} MB",
        )
        print(f"memory: {own_memory_bytes(self._gateway) / 1e6:.0f} MB in the end")


def refusals(gateway: Routelake) -> dict[str, float]:
    """Counts by reason."""
    return _counts(gateway, "rocketmq_namesrv_security_events_total", "reason")


def over_quotas(gateway: Routelake) -> dict[str, float]:
    """How often something was refused, by quota."""
    return _counts(gateway, "routelake_quota_refused_total", "quota")


def _counts(gateway: Routelake, metric: str, label: str) -> dict[str, float]:
    with socket.create_connection(("127.0.0.1", gateway.http_port), 60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\r\n\r\n")[2].decode()
    return {
        sample.labels[label]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and sample.value
    }


def events_of(gateway: Routelake, name: str) -> list[type]:
    """The kinds of events that the log has about a broker."""
    assert gateway.stop() == 0
    log = open_log(f"sqlite://{gateway.data_dir / 'events.db'}")
    try:
        found = [decode(record.payload) for record in log.read(0, max_records=100_000)]
    finally:
        log.close()
    return [type(event) for event in found if getattr(event, "broker_name", None) == name]


class Attackers:
    """Threads that each do the same thing over and over until told to stop; what happens to them is theirs."""

    def __init__(self, count: int, attack: Callable[[int, threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._attack = attack
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        self.rounds = 0

    def _run(self, number: int) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                self._attack(number, self._stop)
            self.rounds += 1
            self._stop.wait(0.02)

    def __enter__(self) -> Attackers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

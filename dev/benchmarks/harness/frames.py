# SPDX-License-Identifier: Apache-2.0
"""Requests to send: registrations, heartbeats and route queries, as frames for the generator and as calls."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from clients.broker.config import BrokerConfig
from clients.broker.fleet_topics import FleetBroker, SharedTopics, fleet_configs
from clients.broker.registration import Registration, heartbeat_request, register_request
from dev.benchmarks.harness.loadgen import OPAQUE
from dev.peers.java import wait_until
from remoting.codec.connection import RemotingConnection
from remoting.codec.frame import FLAG_ONEWAY, RemotingCommand, encode_frame
from schemas.codes import RequestCode

HEARTBEAT_TIMEOUT_MS = 3_600_000
"""Registered with every broker, so that none expires because a bench froze its server for a while."""


def brokers(count: int, topics: int, seed: int = 1) -> list[FleetBroker]:
    """Broker groups with the same topics each, in addition to the built-in ones."""
    shared = SharedTopics(topics, seed)
    now_ms = round(time.time() * 1000)
    return [FleetBroker(config, shared, now_ms) for config in fleet_configs(count, 1, BrokerConfig())]


def topic_name(number: int) -> str:
    """Return the name of a topic, as SharedTopics names it."""
    return f"topic-{number:05d}"


def registration(broker: FleetBroker, part: Registration | None = None) -> RemotingCommand:
    """REGISTER_BROKER with all topics, or with a part of them."""
    command = register_request(broker.config, part or broker.full())
    fields = {**(command.ext_fields or {}), "heartbeatTimeoutMillis": str(HEARTBEAT_TIMEOUT_MS)}
    return msgspec.structs.replace(command, ext_fields=fields)


def route_query(topic: str) -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC as a 5.5.0 client sends it (MQClientAPIImpl.getTopicRouteInfoFromNameServer)."""
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def for_generator(commands: Sequence[RemotingCommand]) -> list[bytes]:
    """Frames with an opaque that the generator can replace."""
    return [encode_frame(msgspec.structs.replace(command, opaque=OPAQUE)) for command in commands]


def http_get(path: str) -> bytes:
    """A keep-alive GET."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()


class Link:
    """One blocking connection: calls one after the other. For setting up and for asking now and then."""

    def __init__(self, port: int, timeout_s: float = 120.0) -> None:
        """Connect to 127.0.0.1."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = RemotingConnection(keep_responses=True)
        self._opaque = 0
        self._sending = threading.Lock()
        self._kept_alive: threading.Event | None = None

    def __enter__(self) -> Self:
        """This connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close it; a NameServer takes brokers that registered over it for gone."""
        if self._kept_alive is not None:
            self._kept_alive.set()
        self._socket.close()

    def send(self, command: RemotingCommand) -> int:
        """Send a request; returns its opaque."""
        with self._sending:
            self._opaque += 1
            self._socket.sendall(encode_frame(msgspec.structs.replace(command, opaque=self._opaque)))
            return self._opaque

    def keep_alive(self, broker: FleetBroker, every_s: float = 30.0) -> None:
        """Send heartbeats without an answer until `close`: both servers close connections that are idle for 120 s."""
        if self._kept_alive is not None:
            return
        heartbeat = heartbeat_request(broker.config)
        stop = self._kept_alive = threading.Event()

        def work() -> None:
            with suppress(OSError):
                while not stop.wait(every_s):
                    self.send(msgspec.structs.replace(heartbeat, flag=FLAG_ONEWAY))

        threading.Thread(target=work, name="keep-alive", daemon=True).start()

    def answer(self, opaque: int) -> RemotingCommand:
        """Wait for the answer to a request; others are dropped.

        Raises:
            OSError: the connection ended.
        """
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            for received in self._incoming.receive_data(data):
                if isinstance(received, RemotingCommand) and received.opaque == opaque:
                    return received

    def call(self, command: RemotingCommand) -> RemotingCommand:
        """Ask and wait, whatever the answer's code. Raises OSError."""
        return self.answer(self.send(command))


def register_all(links: Sequence[Link], fleet: Sequence[FleetBroker]) -> None:
    """Register each broker over a connection of its own, all at once; returns when all of it is visible.

    Raises:
        RuntimeError: one was refused.
    """
    opaques = [link.send(registration(broker)) for link, broker in zip(links, fleet, strict=True)]
    for link, opaque in zip(links, opaques, strict=True):
        answer = link.answer(opaque)
        if answer.code:
            raise RuntimeError(f"a registration was refused: {answer.code} {answer.remark}")
    for link, broker in zip(links, fleet, strict=True):
        link.keep_alive(broker)
    wait_visible(links[0])


def wait_visible(link: Link, timeout_s: float = 300.0) -> None:
    """Wait until what was sent so far is visible: a KV entry that is sent after it is seen after it.

    Raises:
        TimeoutError: it takes too long.
    """
    probe = {"namespace": "routelake-bench", "key": "probe"}
    value = str(time.time_ns())
    link.call(RemotingCommand(RequestCode.PUT_KV_CONFIG, {**probe, "value": value}))
    asked = RemotingCommand(RequestCode.GET_KV_CONFIG, probe)
    wait_until(lambda: link.call(asked).ext("value") == value, timeout_s, "the registrations to be visible")

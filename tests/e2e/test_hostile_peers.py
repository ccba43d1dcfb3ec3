# SPDX-License-Identifier: Apache-2.0
"""Attacks on the remoting port of a real gateway process that serves an honest broker.

The broker registers again and again over one connection, its frame in segments, as a stock one with thousands of topics
does. Whatever the others do, it never loses that connection, each of its registrations is answered in the time that a
stock broker gives a NameServer, and the gateway's memory stays bounded.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading

from dev.model import codes
from dev.model.client import encode_frame
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from schemas.events import ChannelClosed, RegisterBroker
from tests.e2e.hostile import (
    MIB,
    Attackers,
    Broker,
    Memory,
    attacked,
    events_of,
    in_bounded_time,
    read_answer,
    refusals,
    registration,
)


@in_bounded_time
def test_unfinished_frames_cost_the_honest_broker_nothing(gateway: Routelake, during_s: float) -> None:
    """Sixteen connections, each with all but the last nine bytes of a frame of 64 MiB. Closed ones reconnect."""
    frame = registration("hostile", "10.6.6.6:1", 1, 0, body=bytes(64 * MIB - 4096))
    assert len(frame) < 64 * MIB

    def attack(_number: int, stop: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", gateway.remoting_port), 10) as connection:
            connection.settimeout(1.0)
            view = memoryview(frame)[:-9]
            while view and not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    view = view[connection.send(view[: 1 << 20]) :]
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1):
                        return

    with Memory(gateway) as memory:
        with Broker(gateway) as broker, Attackers(16, attack):
            attacked(gateway, during_s)
            wait_until(lambda: refusals(gateway).get("evicted-unfinished", 0) > 0, 60, "somebody to be dropped")
        broker.check()
    assert "evicted-unfinished" in gateway.log_path.read_text()
    assert len(gateway.log_path.read_text().splitlines()) < 20 + during_s
    memory.check()
    kinds = events_of(gateway, "honest")
    assert kinds.count(RegisterBroker) == len(broker.answered)
    assert kinds.count(ChannelClosed) <= 1  # its own, at the end


@in_bounded_time
def test_header_fields_of_peers_are_bounded_by_their_real_size(gateway: Routelake, during_s: float) -> None:
    """64 connections of brokers with three megabytes of junk in a header field, each time of another broker."""
    junk, placeholder = "j" * (3 * MIB), "hostile-NNNN"
    beat = {"brokerAddr": "10.6.6.6:1", "brokerName": placeholder, "clusterName": "c", "junk": junk}
    heartbeat = encode_frame(codes.BROKER_HEARTBEAT, beat, version=513)
    registrations = [
        registration(placeholder, "10.6.6.6:1", 1, 1, more=more)
        for more in ({"junk": junk}, {"junk": junk, "zoneName": junk})
    ]
    numbers = itertools.count()

    def attack(number: int, stop: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", gateway.remoting_port), 60) as connection:
            for _ in range(3):
                name = b"hostile-%04d" % (40 * number + next(numbers) % 40)
                connection.sendall(registrations[number % 2].replace(placeholder.encode(), name))
                if stop.is_set() or not read_answer(connection):
                    return
                connection.sendall(heartbeat.replace(placeholder.encode(), name))
                if not read_answer(connection):
                    return
            stop.wait(during_s)

    with Memory(gateway) as memory:
        with Broker(gateway) as broker, Attackers(64, attack) as attackers:
            attacked(gateway, during_s)
            wait_until(lambda: next(numbers) >= 100, 60, "a hundred registrations")
        broker.check()
    print(f"{attackers.rounds} rounds")
    memory.check()


@in_bounded_time
def test_answers_that_nobody_reads_are_bounded(folding: Routelake, during_s: float) -> None:
    """A large ORDER_TOPIC_CONFIG is in the answer to every registration: thirty connections ask and never read."""
    with socket.create_connection(("127.0.0.1", folding.remoting_port), 60) as admin:
        for number in range(40):
            put = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"topic-{number}", "value": "v" * (250 * 1024)}
            admin.sendall(encode_frame(codes.PUT_KV_CONFIG, put, version=513, opaque=number))
            assert b'"code":0' in read_answer(admin)
    asked = {"namespace": "ORDER_TOPIC_CONFIG", "key": "topic-1"}

    def attack(number: int, stop: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", folding.remoting_port), 60) as connection:
            connection.settimeout(1.0)
            for again in range(1_000):
                requests = [registration(f"hostile-{number}", f"10.6.6.{number}:1", 1, 2)] * 20
                requests += [encode_frame(codes.GET_KVLIST_BY_NAMESPACE, asked, version=513)] * 20
                requests += [encode_frame(codes.GET_KV_CONFIG, asked, version=513)] * 20
                with contextlib.suppress(TimeoutError):
                    connection.sendall(b"".join(requests))
                if stop.wait(1.0 if again else 0.1):
                    return

    with Memory(folding) as memory:
        with Broker(folding) as broker, Attackers(30, attack):
            attacked(folding, during_s)
        broker.check()
    memory.check()


def test_idle_connections_make_room_for_honest_ones(gateway: Routelake) -> None:
    """As many as the gateway takes, and as many again: a newcomer is let in, and a broker keeps its connection."""
    limit = 10_000
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(Broker(gateway, topics=100))
        wait_until(lambda: bool(honest.answered) or honest.error is not None, 60, "the first registration")
        for number in range(limit + 500):  # of two addresses: one may have 8,000 (`--quota connections`)
            source = (f"127.0.0.{66 + number % 2}", 0)
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.remoting_port), 30, source))
        for number in range(20):
            newcomer = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.remoting_port), 30))
            newcomer.sendall(encode_frame(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}, version=513, opaque=number))
            assert read_answer(newcomer), f"newcomer {number} was turned away"
        before = len(honest.answered)
        wait_until(lambda: len(honest.answered) > before or honest.error is not None, 60, "another registration")
        wait_until(lambda: refusals(gateway).get("evicted-idle", 0) >= 500, 60, "idle connections to be evicted")
    honest.check()
    assert "too-many-connections" not in refusals(gateway)

# SPDX-License-Identifier: Apache-2.0
"""Searches for connections to evict: each is found in time, and a search without result is not repeated at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from remoting.codec.bounds import Holding
from remoting.server import server as server_module
from remoting.server.channel import Connection
from remoting.server.memory import ConnectionMemory
from remoting.server.server import RemotingServer
from remoting.server.settings import RemotingSettings
from tests.remoting.test_fair_queue import Idle, Socket

LIMIT = 200


class Crowd:
    """A server with as many connections as are allowed, and a clock that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: int = 1) -> None:
        self.now_s = 100.0
        self.looks = 0
        monkeypatch.setattr(server_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        is_idle = vars(Connection)["is_idle"].fget

        def counted(connection: Connection) -> bool:
            self.looks += 1
            return bool(is_idle(connection))

        monkeypatch.setattr(Connection, "is_idle", property(counted))
        self.server = RemotingServer(Idle(), RemotingSettings(max_connections=LIMIT))  # type: ignore[arg-type]
        self.connections = [self.connect(f"10.0.0.{1 + number % addresses}") for number in range(LIMIT)]

    def connect(self, address: str) -> Connection:
        connection = Connection(self.server)
        connection.connection_made(Peer(address))  # type: ignore[arg-type]
        return connection

    def admitted(self, address: str, count: int) -> int:
        """Open connections. Returns the number of those that the server has admitted."""
        found = sum(self.connect(address).close_reason is None for _ in range(count))
        assert len(self.server.connections) == LIMIT
        return found


class Peer(Socket):
    """A transport to one address."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.address, 1

    def abort(self) -> None:
        self.closing = True


def handles_a_request(connection: Connection) -> None:
    connection._in_flight = 1


def registers(connection: Connection) -> None:
    connection.has_registered = True


@pytest.mark.parametrize(
    ("does", "newcomer"), [(handles_a_request, "10.0.0.1"), (handles_a_request, "10.0.0.2"), (registers, "10.0.0.1")]
)
def test_many_new_connections_share_a_search_that_finds_none_idle(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[Connection], None], newcomer: str
) -> None:
    crowd = Crowd(monkeypatch)
    for connection in crowd.connections:
        does(connection)
    assert crowd.admitted(newcomer, 100) == 0
    assert crowd.looks == LIMIT
    crowd.connections[7]._in_flight = 0
    crowd.connections[7].has_registered = False
    crowd.now_s += 0.25
    assert crowd.admitted(newcomer, 1) == 1
    assert crowd.connections[7].close_reason is not None


def test_a_search_for_newcomers_of_one_address_refuses_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    for connection in crowd.connections:
        registers(connection)
    assert crowd.admitted("10.0.0.1", 1) == 0
    assert crowd.admitted("10.0.0.2", 10) == 10
    assert crowd.admitted("10.0.0.1", 10) == 0


def test_no_broker_is_evicted_for_its_own_address_after_a_search_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    for connection in crowd.connections:
        registers(connection)
    assert crowd.admitted("10.0.0.2", 1) == 1
    assert crowd.admitted("10.0.0.1", 10) == 0


def test_many_new_connections_share_a_search_that_finds_idle_ones_at_many_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd(monkeypatch, addresses=LIMIT)
    for connection in crowd.connections[:100]:
        connection.has_spoken = True
    assert crowd.admitted("10.0.1.1", 1) == 1
    assert sum(crowd.admitted(f"10.0.1.{number}", 1) for number in range(2, 65)) == 63
    assert crowd.looks <= LIMIT + 64
    assert all(connection.close_reason is None for connection in crowd.connections[:100])


def test_a_search_found_before_its_connections_spoke_again_refuses_no_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    assert crowd.admitted("10.0.0.2", 1) == 1
    for connection in crowd.connections:
        connection.last_read += 1.0
    assert crowd.admitted("10.0.0.2", 10) == 10


class Held:
    """A connection with unread answers and an unfinished frame."""

    looks = 0

    def __init__(self, address: str, unread_bytes: int = 0, held_bytes: int = 0) -> None:
        self.address, self.unread_bytes, self.held_bytes = address, unread_bytes, held_bytes

    @property
    def held(self) -> Holding[Held]:
        Held.looks += 1
        return Holding(self, self.address, self.held_bytes, time.monotonic() - 10.0)

    @property
    def unread(self) -> Holding[Held]:
        Held.looks += 1
        return Holding(self, self.address, self.unread_bytes, time.monotonic())

    def go_on(self) -> None: ...


class Memory(ConnectionMemory[Held]):
    """Memory of a server with these connections. Evicted connections hold nothing more."""

    def __init__(self, settings: RemotingSettings, connections: list[Held]) -> None:
        super().__init__(settings, {str(number): each for number, each in enumerate(connections)}, self.drop)
        self.evicted: list[Held] = []
        self.unfinished_bytes = sum(each.held_bytes for each in connections)
        Held.looks = 0

    def drop(self, connection: Held, reason: str, detail: str) -> None:
        self.evicted.append(connection)
        self.reads_again(connection)
        self.unfinished_bytes -= connection.held_bytes
        connection.unread_bytes = connection.held_bytes = 0


def test_what_peers_have_read_since_they_stopped_is_measured_once() -> None:
    """They read down to a size above the low-water mark, so their connections stay in the sum."""
    peers = [Held(f"address {number % 50}", 300) for number in range(300)]
    memory = Memory(RemotingSettings(max_unread_bytes=300 * 250), peers)
    for peer in peers[:250]:
        memory.stopped_reading(peer)
        peer.unread_bytes = 70
    Held.looks = 0
    for peer in peers[250:]:
        memory.stopped_reading(peer)
    assert not memory.evicted
    assert memory.unread_bytes == 250 * 70 + 50 * 300
    assert Held.looks <= 50 + 251


def test_of_peers_that_read_a_little_enough_are_evicted() -> None:
    peers = [Held(f"address {number % 50}", 300) for number in range(900)]
    memory = Memory(RemotingSettings(max_unread_bytes=300 * 250), peers)
    for peer in peers:
        memory.stopped_reading(peer)
        assert sum(each.unread_bytes for each in memory._unread) <= 300 * 250
        peer.unread_bytes -= min(peer.unread_bytes, 100)
    assert len(memory.evicted) > 400


def test_requests_in_flight_evict_no_sender_of_small_requests() -> None:
    """Their memory does not become free by it."""
    peers = [Held(f"address {number % 50}", held_bytes=100) for number in range(300)]
    memory = Memory(RemotingSettings(max_received_bytes=100_000), peers)
    memory.in_flight_bytes = 200_000
    for _ in range(100):
        memory.unfinished_grew()
    assert not memory.evicted
    assert Held.looks == 0


@pytest.mark.parametrize("in_flight_bytes", [0, 50_000, 100_000, 1_000_000])
def test_unfinished_frames_are_bounded_whatever_is_in_flight(in_flight_bytes: int) -> None:
    peers = [Held(f"address {number % 50}", held_bytes=100) for number in range(3000)]
    memory = Memory(RemotingSettings(max_received_bytes=100_000), peers)
    memory.in_flight_bytes = in_flight_bytes
    memory.unfinished_grew()
    counted = min(in_flight_bytes, 50_000)
    assert memory.unfinished_bytes == 75_000 - counted
    assert Held.looks <= 2 * len(peers)

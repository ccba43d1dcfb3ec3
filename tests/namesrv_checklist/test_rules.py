# SPDX-License-Identifier: Apache-2.0
"""Rules that RocketMQ's unit tests leave out, where a gateway adds to the rule: repeated registrations, lost connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.wire import Request
from remoting.server.settings import RemotingSettings
from tests.namesrv_checklist.brokers import (
    BROKER,
    MASTER,
    NameServer,
    nameserver,
    nameserver_on_the_wire,
    until,
)

T, T1 = "TestTopic", "TestTopic1"


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        yield found


# --- static topics ---


def mapping(bname: str, epoch: int = 1) -> dict[str, Any]:
    """A TopicQueueMappingInfo of T."""
    return {
        "bname": bname,
        "currIdMap": {"0": 0, "1": 3},
        "dirty": False,
        "epoch": epoch,
        "scope": "__global__",
        "topic": T,
        "totalQueues": 4,
    }


def mappings_of(ns: NameServer) -> dict[str, Any] | None:
    route = ns.route(T)
    assert route is not None
    found: dict[str, Any] | None = route.get("topicQueueMappingByBroker")
    return found


def test_static_topics_are_registered_answered_and_kept(ns: NameServer) -> None:
    """The mapping table only ever grows: neither 216 nor 104 nor a registration without mappings takes from it."""
    other = MASTER.but(name="another", addr="127.0.0.1:50911")
    ns.register(MASTER, T, mappings={T: mapping(BROKER)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER)}
    ns.register(other, T, mappings={T: mapping("another", 2)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER), "another": mapping("another", 2)}
    # A new version replaces by the mapping's own bname, ...
    ns.register(MASTER.next_version(), T, mappings={T: mapping(BROKER, 7)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER, 7), "another": mapping("another", 2)}
    # ... an equal version does not, ...
    ns.register(MASTER.next_version(), T, mappings={T: mapping(BROKER, 9)})
    assert (mappings_of(ns) or {})[BROKER]["epoch"] == 7
    # ... and absence takes nothing away.
    ns.register(MASTER.next_version().next_version(), T)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T)
    assert ns.route(T) is None
    ns.register(MASTER.next_version().next_version(), T)
    ns.unregister(other)
    assert set(mappings_of(ns) or {}) == {BROKER, "another"}


# --- split registration ---


def test_a_split_registration_repeated_changes_nothing(tmp_path: Path) -> None:
    """Each cycle sends every part again: no epoch, no refusal, and a topic that was deleted comes back."""
    parts = [[f"topic-{part}-{number}" for number in range(5)] for part in range(3)]
    with nameserver_on_the_wire(tmp_path) as ns:
        assert ns.local is not None
        lake, gateway = ns.local
        for _ in range(2):
            for part in parts:
                assert ns.register(MASTER, *part, base=False).code == codes.SUCCESS
        # The last ones were answered when they were durable: the epoch of their time may still be to come.
        lake.fold.wait_for(lake.log.end().next_offset - 1)
        until(lambda: gateway.gateway.view.epoch == lake.fold.writer.epoch)
        epoch, before = gateway.gateway.view.epoch, len(ns.changes())
        for _ in range(3):
            for part in parts:
                assert ns.register(MASTER, *part, base=False).code == codes.SUCCESS
        assert gateway.gateway.view.epoch - epoch <= 9, "times of heartbeats alone may be committed"
        assert len(ns.changes()) == before
        ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=parts[1][2])
        for part in parts:
            ns.register(MASTER, *part, base=False)
        assert ns.route(parts[1][2]) is not None


def test_a_slimmed_heartbeat_brings_a_deleted_topic_back(ns: NameServer) -> None:
    """The gateway leaves out topics that the fold knows; a row that was taken away makes it send them again."""
    for _ in range(3):
        ns.register(MASTER, T, T1)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T)
    assert ns.route(T) is None
    ns.register(MASTER, T, T1)
    assert ns.route(T) is not None


# --- lost connections ---


def test_a_reset_connection_unregisters(tmp_path: Path) -> None:
    """BrokerHousekeepingService.onChannelException."""
    with nameserver_on_the_wire(tmp_path) as ns:
        connection = ns.connect()
        ns.register(MASTER, T, over=connection)
        connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection._socket.close()
        until(lambda: ns.route(T) is None)


def test_a_silent_connection_unregisters(tmp_path: Path) -> None:
    """BrokerHousekeepingService.onChannelIdle, after serverChannelMaxIdleTimeSeconds."""
    with nameserver_on_the_wire(tmp_path, RemotingSettings(idle_timeout_s=4.0)) as ns:

        def answer() -> int:
            with closing(ns.connect()) as asker:  # one that is kept may itself be silent for too long
                return int(asker.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T})).code)

        ns.register(MASTER, T, over=ns.connect())
        assert answer() == codes.SUCCESS
        until(lambda: answer() == codes.TOPIC_NOT_EXIST)

# SPDX-License-Identifier: Apache-2.0
"""SIGKILL and SIGSTOP at random moments under load: every acknowledged event shows at once, and is applied exactly once.

After each acknowledged registration its client asks for the route. Every gateway shows it, also one that has just been
started again or has no running fold. At the end the tables must be the pure fold of every record of the event log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import urllib.error
from collections import Counter
from collections.abc import Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dev.benchmarks.harness.machine import tree
from dev.model import codes
from dev.model.client import ConnectionClosed, RemotingClient
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.stopped import stopped
from dev.support.intervals import assert_kept
from eventlog.base import LogRecord
from eventlog.open import open_log, open_reader
from lake.commits import last_commit
from lake.delta.ddl import lock_lake
from lake.history.intervals import IntervalKeeper
from lake.write.seed import read_state
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import RouteState
from ops.verify.verify import verify
from schemas.events import RegisterBroker, decode
from schemas.tables import ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE
from tests.e2e.test_routelake import registration
from tests.examples.parts import config, register, version

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]

BROKERS = 12

PATIENCE_S = 300.0
"""A start of Spark has taken two minutes at a load of 30."""


class Load(threading.Thread):
    """Registers until told to stop, in a hurry without a pause; remembers what was acknowledged.

    Attributes:
        hurry: Set where something is killed. What is waited for afterwards, the longest part, needs a few registrations a
            second.
        acknowledged: One for each registration that was answered with success.
    """

    calm_s = 0.2
    """Between two registrations, without a hurry."""
    acknowledged: Sized

    def __init__(self, server: Routelake) -> None:
        super().__init__(daemon=True)
        self._server, self._stopping = server, threading.Event()
        self.hurry = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.hurry.set()
        self.join(60)


class SmallLoad(Load):
    """Brokers over HTTP, each time with a new version."""

    def __init__(self, server: Routelake, seed: int) -> None:
        super().__init__(server)
        self._random = random.Random(seed)
        self.acknowledged: dict[int, tuple[str, int]] = {}
        """log offset -> (brokerName, DataVersion counter)"""
        self.unseen: list[str] = []
        """Told to be visible, and not shown to who asked next."""
        self._name = f"load-{seed}"

    def run(self) -> None:
        counter = 0
        while not self._stopping.is_set():
            self.hurry.wait(self.calm_s)
            counter += 1
            broker = f"{self._name}-{self._random.randrange(BROKERS)}"
            body = registration(broker, counter, **{f"topic-{n}": counter % 7 + 1 for n in range(3)})
            body["brokerAddr"] = f"10.8.{self._name[-1]}.{int(broker.rsplit('-', 1)[1]) + 1}:10911"
            try:
                told = self._server.send("POST", "/v1/brokers/register", body)
                offset = told["offset"]
                self.acknowledged[offset] = (broker, counter)
                shown = self._route(broker)
                if told["visible"] and shown != counter % 7 + 1:
                    self.unseen.append(f"{broker} at offset {offset}: {counter % 7 + 1} queues, shown {shown}")
            except urllib.error.HTTPError as error:
                assert error.code == 503, error.read()
            except (OSError, HTTPException):  # not there, or killed in the middle of its answer
                self._stopping.wait(0.05)

    def _route(self, broker: str) -> int | None:
        """Queues of a topic on a broker, as soon as a gateway answers."""
        while True:
            try:
                rows = self._server.get("/v1/topics/topic-1/route")["queueDatas"]
            except urllib.error.HTTPError as error:
                assert error.code in {404, 503}, error.read()
                if error.code == 404:
                    return None
            except (OSError, HTTPException):
                self._stopping.wait(0.05)
            else:
                return next((row["writeQueueNums"] for row in rows if row["brokerName"] == broker), None)


class LargeLoad(Load):
    """One broker over remoting, each time with 1,500 topics and a new version: 200 KB, decoded in a process of its own."""

    BROKER = "broker-l"
    calm_s = 1.0

    def __init__(self, server: Routelake) -> None:
        super().__init__(server)
        self._topics = [config(f"a-topic-with-a-long-name-{number}") for number in range(1_500)]
        self.acknowledged: set[int] = set()
        """DataVersion counters."""

    def run(self) -> None:
        counter = 0
        while not self._stopping.is_set():
            try:
                with RemotingClient("127.0.0.1", self._server.remoting_port) as client:
                    while not self._stopping.is_set():
                        self.hurry.wait(self.calm_s)
                        counter += 1
                        topics = [*self._topics, config("changing", queues=counter % 7 + 1)]
                        send = register(self.BROKER, "10.8.9.1:10911", topics=topics, at=version(counter=counter))
                        if client.call(send.request()).code == codes.SUCCESS:
                            self.acknowledged.add(counter)
            except (OSError, ConnectionClosed):
                self._stopping.wait(0.05)


@contextmanager
def in_a_hurry(loads: Sequence[Load]) -> Iterator[None]:
    """All register without a pause, and each has done so once more when this begins."""
    seen = [len(load.acknowledged) for load in loads]
    for load in loads:
        load.hurry.set()
    wait_until(
        lambda: all(len(load.acknowledged) > before for load, before in zip(loads, seen, strict=True)),
        120,
        "each load to have registered",
    )
    yield
    for load in loads:
        load.hurry.clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Routelake]:
    with Routelake(tmp_path / "data", options=("--liveness-interval-s", "0.2")) as running:
        yield running


def test_nothing_acknowledged_is_lost_or_doubled(server: Routelake, request: pytest.FixtureRequest) -> None:
    deep = request.config.getoption("--deep", default=False)
    rng = random.Random(20261121)
    small = [SmallLoad(server, seed) for seed in range(2)]
    large = LargeLoad(server)
    loads = [*small, large]
    for load in loads:
        load.start()
    for _ in range(20 if deep else 1):
        # From the middle of its start to well into its work.
        wait_until(lambda: server.children("fold"), PATIENCE_S, "a fold, should the machine have been too busy for one")
        pid = server.child("fold")
        epoch = _epoch(server)
        if rng.random() < 0.75:
            wait_until(lambda epoch=epoch: _epoch(server) > epoch, PATIENCE_S, "the fold to commit again")
            with in_a_hurry(loads):
                threading.Event().wait(rng.uniform(0, 1.5))
                server.kill_child("fold")
        else:
            server.kill_child("fold")
        wait_until(lambda pid=pid: _other_child(server, "fold", pid), PATIENCE_S, "the fold to be started again")
    wait_until(server.is_whole, 180, "routelake to be ready again")
    with in_a_hurry(loads):
        server.kill_child("gateway")
    wait_until(server.is_whole, PATIENCE_S, "routelake to be ready after the gateway's end")
    for _ in range(10 if deep else 1):
        gateway = server.child("gateway")
        with in_a_hurry(loads):
            os.kill(server.log_worker_pid(), signal.SIGKILL)
        wait_until(
            lambda pid=gateway: _other_child(server, "gateway", pid), PATIENCE_S, "the gateway to be started again"
        )
        wait_until(server.is_whole, PATIENCE_S, "routelake to be ready after the end of what writes the log")
    with in_a_hurry(loads):
        for pid in (server.child("fold"), server.log_worker_pid(), server.child("gateway")):
            with stopped(tree(pid)):
                threading.Event().wait(rng.uniform(0.5, 2))
        with stopped(tree(server.child("fold"))):
            seen = [len(load.acknowledged) for load in small]
            wait_until(
                lambda: all(len(load.acknowledged) > before + 5 for load, before in zip(small, seen, strict=True)),
                60,
                "registrations while the fold stands still",
            )
    for load in loads:
        load.stop()
    assert not [unseen for load in small for unseen in load.unseen]
    assert len(large.acknowledged) > 5
    acknowledged = {offset: what for load in small for offset, what in load.acknowledged.items()}
    assert len(acknowledged) > 20
    newest = max(acknowledged)
    wait_until(lambda: server.folded_offset() >= newest, PATIENCE_S, "everything to be folded")
    wait_until(lambda: _complete(server), 60, "heartbeat times to be written")
    assert server.stop() == 0

    log = open_log(f"sqlite://{server.data_dir / 'events.db'}")
    try:
        records: list[LogRecord] = []
        while found := log.read(records[-1].offset + 1 if records else 0):
            records += found
    finally:
        log.close()
    events = {record.offset: decode(record.payload) for record in records}
    for offset, (broker, counter) in acknowledged.items():
        event = events[offset]
        assert isinstance(event, RegisterBroker)
        assert (event.broker_name, event.data_version.counter) == (broker, counter)
    written = {
        event.data_version.counter
        for event in events.values()
        if isinstance(event, RegisterBroker) and event.broker_name == LargeLoad.BROKER
    }
    assert large.acknowledged <= written

    last = last_commit(server.lake_dir)
    assert last is not None
    folded = [record for record in records if record.offset <= last.log_offset]
    expected = replay(RouteState(), folded)
    actual = read_state(server.lake_dir, last)
    assert actual.groups == expected.groups
    assert actual.kv == expected.kv

    epochs = sorted(DeltaTable(str(server.lake_dir / ROUTE_COMMIT_TABLE.name)).to_pyarrow_table()["epoch"].to_pylist())
    assert epochs == list(range(1, len(epochs) + 1)), "epochs without gaps, none twice"
    history = DeltaTable(str(server.lake_dir / ROUTE_CHANGE_TABLE.name)).to_pyarrow_table()
    rows = Counter(
        zip(
            *(history[name].to_pylist() for name in ("offset", "command", "brokerName", "seq", "tableName")),
            strict=True,
        )
    )
    doubled = [row for row, count in rows.items() if count > 1]
    assert not doubled, doubled[:5]
    with closing(lock_lake(server.lake_dir)):  # the last seconds, as the next start would
        IntervalKeeper(server.lake_dir).catch_up(last.epoch, last.versions[ROUTE_CHANGE_TABLE.name])
    assert_kept(server.lake_dir)
    with closing(open_reader(f"sqlite://{server.data_dir / 'events.db'}")) as reader:
        proof = verify(server.lake_dir, reader)
    assert (proof.refuted, proof.not_verified) == ([], [])


def _epoch(server: Routelake) -> int:
    try:
        try:
            return int(server.get("/readyz")["epoch"])
        except urllib.error.HTTPError as error:
            return int(json.load(error)["epoch"])
    except (OSError, HTTPException):
        return 0


def _complete(server: Routelake) -> bool:
    last = last_commit(server.lake_dir)
    return last is not None and last.liveness_offset == last.log_offset


def _other_child(server: Routelake, name: str, pid: int) -> bool:
    try:
        return server.child(name) != pid
    except (LookupError, FileNotFoundError):
        return False

# SPDX-License-Identifier: Apache-2.0
"""A plan is its seed's; a record says what was done."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from dev.fault_injection.faults import Faults
from dev.fault_injection.operations import READS, WRITES, Operation
from dev.fault_injection.plan import KINDS, NEEDS, OTHERS, QUIET_S, REST, Worker, operations, plan
from dev.fault_injection.record import Ended, Entry, Injected, Recorder, read_record
from dev.fault_injection.world import Setup, World, possible
from dev.peers.routelake import Routelake


def players(seed: int) -> list[Worker]:
    """Who asks and waits for an answer, one operation after another."""
    return [worker for worker in plan(seed, 60).workers if worker.role != "follower"]


def test_the_same_seed_plans_the_same() -> None:
    assert plan(7, 60) == plan(7, 60)
    assert plan(7, 60) != plan(8, 60)
    for worker, twin in zip(players(7), players(7), strict=True):
        assert list(islice(operations(worker), 200)) == list(islice(operations(twin), 200))


def test_faults_keep_to_the_time_and_take_turns() -> None:
    planned = plan(3, 600).faults
    faults = [fault for fault in planned if fault.kind != REST]
    assert all(QUIET_S <= fault.at_s < 600 - QUIET_S for fault in faults)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert planned[-1].kind == REST
    assert [fault.kind for fault in planned].count(REST) == -(-len(faults) // 15)


def test_every_fault_can_be_injected(tmp_path: Path) -> None:
    """A kind that is planned is known to `Faults`, and what it needs to `possible`."""
    world = World(tmp_path, Setup(), ())
    world.gateways.append(Routelake(tmp_path / "data"))
    assert Faults(world, lambda: 0).kinds == set(KINDS)
    everything = set(possible(KINDS, Setup("kafka", 2))) | set(possible(KINDS, Setup("sqlite", 1)))
    of_the_machine = {"preload", "mount", "net"}
    assert everything >= {kind for kind in KINDS if not of_the_machine & {*NEEDS.get(kind, ())}}
    assert not set(OTHERS) & set(possible(KINDS, Setup("sqlite", 1)))


def test_two_gateways_share_the_work() -> None:
    assert {worker.gateway for worker in plan(1, 60).workers} == {0}
    of_second = [worker.role for worker in plan(1, 60, gateways=2).workers if worker.gateway == 1]
    assert set(of_second) == {"brokers", "admin", "reader", "follower"}
    assert [worker.via for worker in plan(1, 60, gateways=2).workers if worker.both] == ["remoting"]
    assert not any(worker.both for worker in plan(1, 60).workers)


def test_nobody_speaks_for_another_broker() -> None:
    owned = [broker for worker in plan(1, 60).workers for broker in worker.brokers]
    assert len({broker.addr for broker in owned}) == len(owned)


def test_roles_change() -> None:
    """The slave comes first, with a higher stateVersion; the old master says once more that it is one, in vain."""
    worker = players(1)[0]
    done = [operation for operation in islice(operations(worker), 2_000) if operation.kind == "register"]
    first = next(place for place, operation in enumerate(done) if operation.state)
    new, old, slave = ((of.broker.id, of.broker.addr, of.state) for of in done[first : first + 3] if of.broker)
    assert (new[0], new[2]) == (0, 1)
    assert (old[0], old[2]) == (0, 0)
    assert slave == (1, old[1], 1)


def test_some_are_sent_one_way() -> None:
    sent = [operation for worker in players(1) for operation in islice(operations(worker), 500) if operation.one_way]
    assert {operation.kind for operation in sent} == {"register", "heartbeat"}
    assert all(operation.request().oneway for operation in sent)


def test_every_operation_can_be_sent() -> None:
    kinds = set()
    for worker in players(1):
        for operation in islice(operations(worker), 2_000):
            kinds.add(operation.kind)
            if operation.kind in WRITES | READS:
                operation.http() if worker.via == "http" else operation.request()
    assert kinds >= WRITES | READS


def test_a_record_comes_back(tmp_path: Path) -> None:
    worker = plan(1, 60).workers[0]
    operation = next(operations(worker))
    entries = [
        Entry("w", "remoting", "127.0.0.1:1", operation, 1.0, 2.0, 0, ext={}),
        Entry("w", "http", "127.0.0.1:1", Operation("topics"), 1.0, 2.0, 200, "{}", offset=0, asked={"as_of": "1"}),
        Entry("w", "http", "", Operation("topics", committed=True), 1.0, 2.0, error="refused"),
    ]
    recorder = Recorder(tmp_path / "record.jsonl", {"seed": 1})
    for entry in entries:
        recorder.entry(entry)
    recorder.fault(Injected("kill-fold", 1.0, 2.0, "7"))
    recorder.ended(Ended("w", 0, "127.0.0.1:1", 2.0, "asked"))
    recorder.folded(7)
    recorder.rest(3.0)
    recorder.close()
    with (tmp_path / "record.jsonl").open("a") as file:
        file.write('{"worker": "cut o')
    record = read_record(tmp_path / "record.jsonl")
    assert record.about == {"seed": 1}
    assert record.faults == [Injected("kill-fold", 1.0, 2.0, "7")]
    assert record.ended == [Ended("w", 0, "127.0.0.1:1", 2.0, "asked")]
    assert record.folded == 7
    assert record.rests == [3.0]
    assert [replaced.acknowledged for replaced in record.entries] == [True, True, False]
    assert [read.operation for read in record.entries] == [entry.operation for entry in entries]
    assert [(read.code, read.offset, read.asked) for read in record.entries] == [
        (0, None, {}),
        (200, 0, {"as_of": "1"}),
        (None, None, {}),
    ]

# SPDX-License-Identifier: Apache-2.0
"""Plan of a run, made from its seed alone: the operations of each worker in order, and the faults with their times.

Pure: no clock and no I/O. The machine decides when exactly a request reaches a server, so the same seed gives the same
plan and not the same history; the judge reads the history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dev.fault_injection.operations import HTTP_READS, REMOTING_READS, Broker, Operation

CLUSTERS: Final = ("cluster-a", "cluster-b")
TOPICS: Final = tuple(f"topic-{letter}" for letter in "abcdefgh")
NAMESPACES: Final = ("ORDER_TOPIC_CONFIG", "namespace-a")
KEYS: Final = ("key-a", "key-b", "key-c")

SHORT_MS: Final = 8_000
"""heartbeatTimeoutMillis of brokers that stop their heartbeats."""

ALWAYS: Final = ("kill-gateway", "kill-fold", "kill-log", "stop-gateway", "stop-fold", "stop-log", "cut")
"""Faults after which routelake comes back by itself."""
SPARK: Final = ("kill-workers",)
"""Faults of Spark's Python workers."""
LARGE: Final = ("kill-all", "restart", "second-fold", "lost-checkpoint")
"""Faults that take a start of the whole."""
MACHINE: Final = ("slow-disk", "failing-disk", "disk-full", "clock-forward", "clock-back", "clock-leap")
"""Faults of a machine that affect its processes."""
OTHERS: Final = ("kill-second", "stop-second", "separate-second", "kill-kafka", "stop-kafka")
"""Faults of the second gateway, and of Kafka."""
KINDS: Final = (*ALWAYS, *SPARK, *LARGE, *MACHINE, *OTHERS)

NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "kill-workers": ("spark",),
    "lost-checkpoint": ("spark",),
    "slow-disk": ("preload", "sqlite"),
    "failing-disk": ("preload", "sqlite"),
    "clock-forward": ("preload",),
    "clock-back": ("preload",),
    "clock-leap": ("preload", "sqlite"),
    "disk-full": ("mount",),
    "kill-second": ("second",),
    "stop-second": ("second",),
    "separate-second": ("second", "net"),
    "kill-kafka": ("kafka",),
    "stop-kafka": ("kafka",),
}
"""Requirements of the faults: see `dev.fault_injection.world.possible`."""

QUIET_S: Final = 4.0
"""At the start and at the end no fault begins."""
REST: Final = "rest"
"""In the place of a fault: nothing happens until everything is well by itself."""
_BETWEEN_RESTS: Final = 15
"""Faults from one rest to the next; after the last fault there is one in any case."""


@dataclass(frozen=True)
class Worker:
    """One client: brokers that speak for themselves, an administrator, a reader, or a follower of epochs.

    Attributes:
        via: "remoting" or "http"; a follower's is "events".
        seed: of its operations.
        brokers: brokers that it sends for.
        gateway: which one it talks to, where there are two.
        topic: a follower's; "" if it wants every epoch.
        pace: times as long between its operations.
        near_second: whether it is on the machine of the second gateway, if that gateway has one.
        both: whether its brokers register with the other gateway, too, as stock ones do with each of namesrvAddr.
    """

    name: str
    role: str
    via: str
    seed: int
    brokers: tuple[Broker, ...] = ()
    gateway: int = 0
    topic: str = ""
    pace: float = 1.0
    near_second: bool = False
    both: bool = False


@dataclass(frozen=True)
class Fault:
    """One fault, or a `REST`.

    Attributes:
        at_s: when it begins, from the start of the traffic; later, by as much as rests before it took.
        hold_s: time for which a process stands still or is away.
    """

    at_s: float
    kind: str
    hold_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int
    seconds: float
    workers: tuple[Worker, ...]
    faults: tuple[Fault, ...]


def plan(
    seed: int,
    seconds: float,
    kinds: tuple[str, ...] = KINDS,
    every_s: float = 7.0,
    gateways: int = 1,
    pace: float = 1.0,
) -> Plan:
    """The plan of one run.

    Args:
        seed: any number.
        seconds: of traffic.
        kinds: faults to choose from, perhaps none; each comes once before any comes twice.
        every_s: time between faults, about.
        gateways: among which workers are spread.
        pace: times as long between a worker's operations.
    """
    chance = random.Random(seed)
    workers = tuple(replace(worker, pace=pace) for worker in _workers(chance, gateways))
    return Plan(seed, seconds, workers, tuple(_faults(chance, seconds, kinds, every_s)))


def _workers(chance: random.Random, gateways: int) -> tuple[Worker, ...]:
    workers = []
    for number in range(4):
        brokers = []
        for group in range(2):
            index = number * 2 + group
            for broker_id in (0, 1) if group == 0 else (0,):
                brokers.append(
                    Broker(
                        CLUSTERS[index % 2],
                        f"broker-{index}",
                        broker_id,
                        f"10.9.{index}.{broker_id + 1}:10911",
                        SHORT_MS if chance.random() < 0.5 else None,
                        acting=group == 0 and chance.random() < 0.5,
                    )
                )
        via = "http" if number % 2 else "remoting"
        seed, gateway = chance.getrandbits(32), number // 3 % gateways
        both = number == 0 and gateways > 1
        workers.append(Worker(f"brokers-{number}", "brokers", via, seed, tuple(brokers), gateway, both=both))
    for number, via in enumerate(("http", "remoting")):
        workers.append(Worker(f"admin-{number}", "admin", via, chance.getrandbits(32), gateway=number % gateways))
    for number, via in enumerate(("http", "remoting", "http")):
        workers.append(
            Worker(f"reader-{number}", "reader", via, chance.getrandbits(32), gateway=number // 2 % gateways)
        )
    if gateways > 1:
        workers.append(Worker("reader-3", "reader", "http", chance.getrandbits(32), gateway=1, near_second=True))
    for number in range(3):
        topic = chance.choice(TOPICS) if number == 1 else ""
        seed = chance.getrandbits(32)
        workers.append(
            Worker(f"follower-{number}", "follower", "events", seed, gateway=number // 2 % gateways, topic=topic)
        )
    return tuple(workers)


def _faults(chance: random.Random, seconds: float, kinds: tuple[str, ...], every_s: float) -> Iterator[Fault]:
    at_s, left, count = QUIET_S, list[str](), 0
    while kinds and at_s < seconds - QUIET_S:
        if not left:
            left = chance.sample(kinds, len(kinds))
        if count and count % _BETWEEN_RESTS == 0:
            yield Fault(round(at_s, 3), REST)
        yield Fault(round(at_s, 3), left.pop(), round(chance.uniform(0.3, 3.0), 3))
        count += 1
        at_s += chance.uniform(0.6, 1.4) * every_s
    yield Fault(round(at_s, 3), REST)


# --- what a worker does ---


def operations(worker: Worker) -> Iterator[Operation]:
    """Its endless operations: the same ones for the same worker."""
    chance = random.Random(worker.seed)
    match worker.role:
        case "brokers":
            return _of_brokers(chance, worker)
        case "admin":
            return _of_admin(chance, worker.via)
    return _of_reader(chance, worker.via)


class _Broker:
    """Data that a broker registers now and next."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.is_now, self.version, self.state = broker, 1, 0
        self.topics = _topics(chance)

    def change(self, chance: random.Random) -> None:
        self.version += 1
        self.topics = _topics(chance)

    def register(self, **more: Any) -> Operation:
        return Operation("register", self.is_now, self.version, self.state, self.topics, **more)


def _of_brokers(chance: random.Random, worker: Worker) -> Iterator[Operation]:
    brokers = [_Broker(broker, chance) for broker in worker.brokers]
    last = brokers[0]
    for broker in brokers:
        yield broker.register()
    while True:
        broker = chance.choice(brokers)
        pause_ms = chance.randrange(20, 120)
        one_way = worker.via == "remoting" and chance.random() < _ONE_WAY
        match chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]:
            case "change":
                broker.change(chance)
                last = broker
                yield broker.register(pause_ms=pause_ms, one_way=one_way)
            case "repeat":
                yield broker.register(pause_ms=pause_ms, one_way=one_way)
            case "heartbeat":
                yield Operation("heartbeat", broker.is_now, pause_ms=pause_ms, one_way=one_way)
            case "query-version":
                if worker.via == "remoting":
                    yield Operation("query-version", broker.is_now, broker.version, broker.state, pause_ms=pause_ms)
            case "unregister":
                yield Operation("unregister", broker.is_now, pause_ms=pause_ms)
            case "switch":
                yield from _switch(brokers[0], brokers[1])
            case "read":
                yield Operation("route", ask={"topic": chance.choice(sorted(last.topics))})
            case "close":
                if worker.via == "remoting":
                    yield Operation("close", pause_ms=pause_ms)
            case "silence":
                yield Operation("silence", broker.is_now)


def _switch(one: _Broker, other: _Broker) -> Iterator[Operation]:
    """The slave of a group becomes its master. The old master learns that by a refusal, and registers as a slave."""
    old, new = (one, other) if one.is_now.id == 0 else (other, one)
    new.is_now, new.state = replace(new.is_now, id=0), old.state + 1
    yield new.register()
    yield old.register()
    old.is_now, old.state = replace(old.is_now, id=1), new.state
    yield old.register()


_WEIGHTS: Final = {
    **{"change": 30, "repeat": 20, "heartbeat": 20, "query-version": 6, "unregister": 4},
    **{"switch": 2, "read": 30, "close": 2, "silence": 2},
}
_ONE_WAY: Final = 0.1
"""Part of a broker's registrations and heartbeats over port 9876 that are sent one-way."""


def _topics(chance: random.Random) -> dict[str, tuple[int, int]]:
    names = chance.sample(TOPICS, chance.randrange(2, 5))
    return {name: (chance.randrange(1, 17), chance.randrange(1, 17)) for name in names}


def _of_admin(chance: random.Random, via: str) -> Iterator[Operation]:
    serial = 0
    kinds = ["delete-topic", "wipe", "add-write", "put-kv", "put-kv", "delete-kv", "read", "read"]
    kinds += ["register-topic"] if via == "remoting" else []
    while True:
        serial += 1
        pause_ms = chance.randrange(50, 250)
        kv = {"namespace": chance.choice(NAMESPACES), "key": chance.choice(KEYS)}
        group = {"brokerName": f"broker-{chance.randrange(8)}"}
        match chance.choice(kinds):
            case "delete-topic":
                yield Operation("delete-topic", ask={"topic": chance.choice(TOPICS)}, pause_ms=pause_ms)
            case "register-topic":
                queues = {"reads": str(chance.randrange(1, 17)), "writes": str(chance.randrange(1, 17))}
                ask = {**group, **queues, "topic": chance.choice(TOPICS)}
                yield Operation("register-topic", ask=ask, pause_ms=pause_ms)
            case "wipe":
                yield Operation("wipe", ask=group, pause_ms=pause_ms)
            case "add-write":
                yield Operation("add-write", ask=group, pause_ms=pause_ms)
            case "put-kv":
                yield Operation("put-kv", ask={**kv, "value": f"value-{serial}"}, pause_ms=pause_ms)
            case "delete-kv":
                yield Operation("delete-kv", ask=kv, pause_ms=pause_ms)
            case "read":
                yield Operation("kv", ask=kv)


def _of_reader(chance: random.Random, via: str) -> Iterator[Operation]:
    while True:
        kind = chance.choice(HTTP_READS if via == "http" else REMOTING_READS)
        pause_ms = chance.randrange(10, 80)
        ask = _ask(chance, kind)
        if via == "remoting":
            yield Operation(kind, ask=ask, pause_ms=pause_ms)
            continue
        how = chance.random()
        if kind == "route" and how < 0.18:
            yield Operation("as-of", ask=ask, by_time=how < 0.09, pause_ms=pause_ms)
        elif kind == "route" and how < 0.28:
            yield Operation(kind, ask=ask, poll_s=1, pause_ms=pause_ms)
        else:
            wait_for, committed = how > 0.8 or 0.46 < how < 0.5, 0.3 < how < 0.5
            yield Operation(kind, ask=ask, wait_for=wait_for, committed=committed, pause_ms=pause_ms)


def _ask(chance: random.Random, kind: str) -> dict[str, str]:
    match kind:
        case "route":
            return {"topic": chance.choice(TOPICS)}
        case "members":
            index = chance.randrange(8)
            return {"clusterName": CLUSTERS[index % 2], "brokerName": f"broker-{index}"}
        case "kv":
            return {"namespace": chance.choice(NAMESPACES), "key": chance.choice(KEYS)}
        case "kv-list":
            return {"namespace": chance.choice(NAMESPACES)}
    return {}

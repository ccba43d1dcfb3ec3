# SPDX-License-Identifier: Apache-2.0
"""Background load during a measurement: heartbeats of many brokers, topics that change."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clients.broker.fleet_topics import FleetBroker
from clients.broker.registration import heartbeat_request
from dev.benchmarks.harness.frames import Link, for_generator, registration
from dev.benchmarks.harness.loadgen import Load, RunningLoad, running_load, write_frames
from remoting.codec.frame import RemotingCommand

LONG_S = 86_400.0


def heartbeat_frames(path: Path, fleet: Sequence[FleetBroker]) -> Path:
    """BROKER_HEARTBEAT of each broker."""
    return write_frames(path, for_generator([heartbeat_request(broker.config) for broker in fleet]))


def repeated_frames(path: Path, fleet: Sequence[FleetBroker]) -> Path:
    """The registration of each broker once more, unchanged: what a stock broker sends every 30 s."""
    return write_frames(path, for_generator([registration(broker) for broker in fleet]))


@contextmanager
def heartbeats(folder: Path, port: int, fleet: Sequence[FleetBroker], per_second: float) -> Iterator[RunningLoad]:
    """Heartbeats of all brokers in turn, each over a connection of its own, so many a second in all."""
    load = Load(
        port=port,
        frames=heartbeat_frames(folder / f"heartbeats-{port}.frames", fleet),
        connections=len(fleet),
        depth=4,
        seconds=LONG_S,
        warmup_s=0.0,
        rate=per_second,
        own=True,
        check="code",
    )
    with running_load(load) as running:
        yield running


@contextmanager
def changing_topics(link: Link, broker: FleetBroker, topics: int, every_s: float) -> Iterator[list[RemotingCommand]]:
    """One topic after the other changes its queue number; gives the answers so far."""
    answers = list[RemotingCommand]()

    def change(number: int) -> None:
        broker.change(number % topics, round(time.time() * 1000))
        answers.append(link.call(registration(broker)))

    with every(every_s, change):
        yield answers


@contextmanager
def every(seconds: float, act: Callable[[int], None]) -> Iterator[None]:
    """On a thread of its own: ``act(0)``, ``act(1)``, ... at such distances, until the block is left."""
    stop = threading.Event()

    def work() -> None:
        due = time.monotonic()
        for number in itertools.count():
            if stop.wait(max(0.0, due - time.monotonic())):
                return
            due += seconds
            act(number)

    thread = threading.Thread(target=work, name="background")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

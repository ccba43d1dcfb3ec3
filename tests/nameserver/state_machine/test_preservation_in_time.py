# SPDX-License-Identifier: Apache-2.0
"""Judgement and rules together, second by second: brokers of any phase, and a cut at any time.

A gateway judges once a second and writes what comes of it to the log, as `api.gateway.self_preservation` does.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from dev.support.events import Fold, clock, closed, heartbeat, register
from nameserver.state_machine.preservation import Switch, census, to_begin, to_end
from schemas.events import Actor, Preserve, PreserveEnd

BEAT_S, TIMEOUT_S, CLOCK_S = 30, 120, 5
ACTOR = Actor(gateway="g1", via="routelake")


class Cluster:
    """Brokers ``b0``, ``b1``, ..., each of which sends a heartbeat every 30 s, at its own second."""

    def __init__(self, phases: list[int], percent: int, limit_s: int = 3_600) -> None:
        self.phases, self.switch = phases, Switch(percent, limit_s * 1_000)
        self.fold = Fold()
        self.said: list[Preserve | PreserveEnd] = []
        for number in range(len(phases)):
            self.beat(number)

    def beat(self, number: int, connection: str | None = None) -> None:
        """A stock broker registers every 30 s, and so comes back if it was forgotten."""
        name, timeout_ms = f"b{number}", 1_000 * TIMEOUT_S
        self.fold(register(f"a{number}:1", name=name, heartbeat_timeout_millis=timeout_ms, connection=connection))

    def run(self, seconds: int, hears: Callable[[int], bool]) -> None:
        """Let time pass; ``hears(number)`` tells whether a broker's heartbeat arrives."""
        for second in range(1, seconds + 1):
            self.fold(clock() if second % CLOCK_S == 0 else heartbeat("nobody:1", name="nobody"), after_ms=1_000)
            for number, phase in enumerate(self.phases):
                if (second + phase) % BEAT_S == 0 and hears(number):
                    self.beat(number)
            self._judge()

    def _judge(self) -> None:
        state, now_ms = self.fold.state, self.fold.now_ms
        rows = {(name, *key): live for name, group in state.groups.items() for key, live in group.live.items()}
        counted = census(rows, now_ms)
        event = (
            to_end(self.switch, counted, state.preserved_ms, now_ms, ACTOR)
            if state.preserved_ms
            else to_begin(self.switch, counted, ACTOR)
        )
        if event is not None:
            self.said.append(event)
            self.fold(event)

    @property
    def live(self) -> set[int]:
        return {number for number in range(len(self.phases)) if self.fold.live(f"b{number}")}


FEW = settings(max_examples=max(10, settings().max_examples // 4))
"""An example is an hour of brokers."""

phases = st.lists(st.integers(0, BEAT_S - 1), min_size=2, max_size=12)


@FEW
@given(phases, st.integers(0, 60), st.data())
def test_a_loss_above_the_share_expires_no_broker(phases: list[int], before_s: int, data: st.DataObject) -> None:
    """Whenever it comes and however long it lasts, below the limit."""
    cluster = Cluster(phases, 15)
    everybody = set(range(len(phases)))
    least = max(2, len(phases) * 15 // 100 + 1)
    cut = data.draw(st.sets(st.sampled_from(sorted(everybody)), min_size=least))
    cluster.run(before_s, lambda number: True)
    for _ in range(10):
        cluster.run(60, lambda number: number not in cut)
        assert cluster.live == everybody
    assert cluster.fold.state.preserved_ms and len(cluster.said) == 1
    cluster.run(60, lambda number: True)
    assert not cluster.fold.state.preserved_ms and len(cluster.said) == 2
    assert cluster.live == everybody


@FEW
@given(phases, st.integers(0, 60), st.data())
def test_below_the_share_a_broker_expires_at_its_deadline(
    phases: list[int], before_s: int, data: st.DataObject
) -> None:
    cluster = Cluster(phases, 50)
    everybody = set(range(len(phases)))
    dead = data.draw(st.sets(st.sampled_from(sorted(everybody)), max_size=max(1, len(phases) // 2)))
    cluster.run(before_s, lambda number: True)
    cluster.run(TIMEOUT_S + CLOCK_S + 1, lambda number: number not in dead)
    assert cluster.live == everybody - dead
    assert cluster.said == []


@FEW
@given(phases, st.integers(0, BEAT_S))
def test_all_connections_closed_within_seconds(phases: list[int], before_s: int) -> None:
    """As of a network that resets them, one after another."""
    cluster = Cluster(phases, 15)
    cluster.run(before_s, lambda number: True)
    for number in range(len(phases)):
        cluster.beat(number, connection="1")
    for number in range(len(phases)):
        cluster.fold(closed(f"a{number}:1", "1", name=f"b{number}", grace_ms=10_000), after_ms=100)
    cluster.run(600, lambda number: False)
    assert cluster.live == set(range(len(phases)))
    assert len(cluster.said) == 1


@FEW
@given(phases.filter(lambda phases: len(phases) > 2))
def test_a_broker_without_heartbeats_expires_at_the_limit(phases: list[int]) -> None:
    cluster = Cluster(phases, 15, limit_s=300)
    cluster.run(300, lambda number: number == 0)
    assert cluster.live == set(range(len(phases)))
    cluster.run(300, lambda number: number == 0)
    assert cluster.live == {0}

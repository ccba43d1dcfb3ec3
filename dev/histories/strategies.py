# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for histories of a NameServer: `histories` and `settings` are the entry points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from dev.histories.generators import Generator, World, generators_for, random_settings, spread
from dev.histories.steps import Step
from dev.histories.universe import universes
from dev.model import codes
from dev.model.settings import Settings

T = TypeVar("T")


@st.composite
def _groups(draw: st.DrawFn, generators: Sequence[Generator], world: World) -> list[Step]:
    """One step, or a few that belong together."""

    def pick(options: Sequence[T]) -> T:
        return draw(st.sampled_from(options))

    return spread(pick, generators, world)


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """NamesrvConfig switches for a whole history."""

    def pick(options: Sequence[T]) -> T:
        return draw(st.sampled_from(options))

    return random_settings(pick)


def histories(
    request_codes: frozenset[int] = codes.ALL_CODES,
    *,
    max_steps: int = 40,
    shared_addresses: bool = True,
    shared_names: bool = True,
    timeouts_ms: Sequence[int] = (3_000,),
    advances_ms: Sequence[int] = (),
    closes: bool = False,
    generators: Sequence[Generator] | None = None,
) -> st.SearchStrategy[list[Step]]:
    """Sequences of reads and writes, mixed.

    Args:
        request_codes: `codes.MAIN_CODES` for the main job, `codes.ALL_CODES` for the whole NameServer.
        max_steps: About the longest history.
        shared_addresses: Whether one address may serve several broker names or clusters. RocketMQ keeps liveness by
            (cluster, address), so such brokers disturb each other there.
        shared_names: Whether one broker name may appear in several clusters.
        timeouts_ms: Values of heartbeatTimeoutMillis, in addition to an absent one.
        advances_ms: Steps of the clock, in milliseconds; empty for histories without time.
        closes: Whether connections are lost.
        generators: Generators instead of those that the other arguments choose.
    """
    chosen = tuple(generators or generators_for(request_codes, advances=bool(advances_ms), closes=closes))
    worlds = [
        World(universe, tuple(timeouts_ms), tuple(advances_ms))
        for universe in universes(shared_addresses=shared_addresses, shared_names=shared_names)
    ]
    # Alternatives with a minimum, because a plain list is short on average; the first one is what shrinking ends in.
    sizes = (0, max_steps // 4, max_steps // 2)
    return st.one_of(
        [st.lists(_groups(chosen, world), min_size=size, max_size=max_steps) for size in sizes for world in worlds]
    ).map(lambda groups: [step for group in groups for step in group][: max_steps + 3])

# SPDX-License-Identifier: Apache-2.0
"""Histories by the million: the generators behind a seeded random choice instead of Hypothesis.

Hypothesis draws a few hundred steps a second, which is too slow for a million. What it would do for a failure, `shrunk`
does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dev.histories.generators import World, generators_for, random_settings, spread
from dev.histories.steps import Step
from dev.histories.universe import universes
from dev.model import codes
from dev.model.settings import Settings

T = TypeVar("T")


def random_histories(
    seed: int,
    request_codes: frozenset[int] = codes.ALL_CODES,
    *,
    length: int = 60,
    shared_addresses: bool = True,
    shared_names: bool = True,
    timeouts_ms: Sequence[int] = (3_000,),
    advances_ms: Sequence[int] = (),
    closes: bool = False,
) -> Iterator[tuple[Settings, list[Step]]]:
    """Endless histories with their settings; the same ones for the same arguments.

    Args:
        seed: Any number.
        request_codes: See `dev.histories.strategies.histories`, also for the rest.
        length: Steps per history, at least.
        shared_addresses: Whether one address may serve several broker names or clusters.
        shared_names: Whether one broker name may appear in several clusters.
        timeouts_ms: Values of heartbeatTimeoutMillis, in addition to an absent one.
        advances_ms: Steps of the clock, in milliseconds.
        closes: Whether connections are lost.
    """
    chance = random.Random(seed)

    def pick(options: Sequence[T]) -> T:
        return chance.choice(options)

    generators = generators_for(request_codes, advances=bool(advances_ms), closes=closes)
    worlds = [
        World(universe, tuple(timeouts_ms), tuple(advances_ms))
        for universe in universes(shared_addresses=shared_addresses, shared_names=shared_names)
    ]
    while True:
        world, history = pick(worlds), list[Step]()
        while len(history) < length:
            history += spread(pick, generators, world)
        yield random_settings(pick), history


def shrunk(history: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A shorter history that still fails: every step that is not needed is taken out.

    Args:
        history: Fails.
        fails: Plays a history from the start.
    """
    size = len(history) // 2
    while size >= 1:
        start = 0
        while start < len(history):
            shorter = history[:start] + history[start + size :]
            if fails(shorter):
                history = shorter
            else:
                start += size
        size //= 2
    return history

"""Histories by the million: groups of steps drawn once by Hypothesis, then shuffled by a seeded generator.

Hypothesis draws a few hundred steps a second, which is too slow for a million. A pool of a few thousand groups holds
the same variety; histories made of them cost next to nothing. What Hypothesis would do for a failure, `shrunk` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.histories import Step

Group = list[Step]


def pool_of(groups: st.SearchStrategy[Group], size: int) -> list[Group]:
    """Draw groups of steps, the same ones every time.

    Args:
        groups: See `tests.strategies.weighted`.
        size: How many.
    """
    pool: list[Group] = []

    @hypothesis_settings(
        max_examples=size,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(st.lists(groups, min_size=20, max_size=20))
    def draw(drawn: list[Group]) -> None:
        # Hypothesis begins with the simplest values and repeats itself; twenty at a time is varied enough.
        if len(pool) < size:
            pool.extend(drawn)

    draw()
    return pool[:size]


def shuffled(pool: list[Group], seed: int, length: int) -> Iterator[list[Step]]:
    """Endless histories of about this many steps.

    Args:
        pool: See `pool_of`.
        seed: The same histories for the same seed and pool.
        length: Steps per history.
    """
    chance = random.Random(seed)
    while True:
        history: list[Step] = []
        while len(history) < length:
            history += chance.choice(pool)
        yield history


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

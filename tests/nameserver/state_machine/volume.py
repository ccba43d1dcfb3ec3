# SPDX-License-Identifier: Apache-2.0
"""Many histories at little cost: drawn by Hypothesis once, then shuffled together again and again.

Drawing a history costs a hundred times what playing it does. So Hypothesis draws a few hundred (and shrinks what
fails); thousands more are put together from pieces of those. What fails there is shrunk by leaving steps out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Step = TypeVar("Step")


def recombined(pool: Sequence[Sequence[Step]], rng: random.Random, max_steps: int = 40) -> Iterator[list[Step]]:
    """Histories without end, each of pieces (one to three consecutive steps) of a few histories of the pool."""
    while True:
        sources = [source for source in rng.choices(pool, k=rng.choice((1, 2, 2, 3))) if source]
        if not sources:
            continue
        history: list[Step] = []
        length = rng.randint(5, max_steps)
        while len(history) < length:
            source = rng.choice(sources)
            start = rng.randrange(len(source))
            history.extend(source[start : start + rng.randint(1, 3)])
        yield history


def shortest(history: Sequence[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A history that still fails. No step of it can be left out."""
    left = list(history)
    index = 0
    while index < len(left):
        without = left[:index] + left[index + 1 :]
        if fails(without):
            left = without
            index = 0
        else:
            index += 1
    return left

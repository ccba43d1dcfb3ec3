# SPDX-License-Identifier: Apache-2.0
"""Epochs that came with the word of them (`lake.offer`), until the follower takes them."""

from __future__ import annotations

from collections import deque
from typing import Final

from lake.commits import CommitTail
from lake.offer import Offer
from lake.store import store_of

_MOST: Final = 8
"""Of those that wait the oldest go: what they hold is fetched."""


class Offers:
    """Added on any thread, taken by the follower's."""

    def __init__(self, lake: str) -> None:
        """Nothing is offered yet.

        Args:
            lake: URL of the lake.
        """
        self._lake = lake
        self._waiting: deque[Offer] = deque(maxlen=_MOST)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, offer: Offer) -> None:
        """One more."""
        self._waiting.append(offer)

    def take(self, tail: CommitTail) -> int | None:
        """Have the objects of the oldest at hand if they come right after what was read.

        Args:
            tail: How far the follower has read.

        Returns:
            The version of routeCommitTable up to which nothing has to be fetched; None where they do not fit.
        """
        offer = self._waiting.popleft()
        if not tail.follows(offer.after, offer.identity):
            return None
        store_of(self._lake).have(offer.objects)
        return offer.version

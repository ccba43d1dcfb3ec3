# SPDX-License-Identifier: Apache-2.0
"""What a change costs beside itself: the epoch of its second, which has commits, and partitions written anew.

Whoever comes first in a second is charged for them; what others change in the same second is written along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nameserver.view.snapshot import RouteView
from schemas.events import KEY_KV, AnyEvent, routing_key
from security.admission.quota_costs import (
    PARTITION_BYTES,
    Size,
    epoch_bytes,
    groups_of,
    history_bytes,
    kv_bytes,
    removes_group,
)

_REWRITTEN_KEPT: Final = 100_000


class WriteAmplification:
    """What this second's epoch was charged for. One thread at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nobody has been charged.

        Args:
            clock: Seconds; never goes back.
        """
        self._clock = clock
        self._second = -1
        self._rewritten: set[str] = set()

    def commits_bytes(self, view: RouteView) -> int:
        """Of an epoch's commits, for the first change of a second; for others 0."""
        return 0 if self._is_this_second() else epoch_bytes(view)

    def has_paid(self, partition: str) -> bool:
        """Whether somebody was charged for a partition in this second."""
        return self._is_this_second() and partition in self._rewritten

    def rewrite_bytes(
        self, event: AnyEvent, view: RouteView, size_of: Callable[[str, RouteView], Size]
    ) -> tuple[int, tuple[str, ...]]:
        """What an event has written anew that nothing in this second had yet, and what history tells of it.

        Args:
            event: Any but a registration.
            view: At the head.
            size_of: What a broker group has.

        Returns:
            Bytes, and the partitions.
        """
        if routing_key(event) == KEY_KV:
            return (0, ()) if self.has_paid(KEY_KV) else (kv_bytes(view), (KEY_KV,))
        names = groups_of(event, view)
        sizes = tuple(size_of(name, view) for name in names)
        if removes_group(event):
            return PARTITION_BYTES + history_bytes(event, sizes), ()
        anew = sum(size.rewrite_bytes for name, size in zip(names, sizes, strict=True) if not self.has_paid(name))
        return anew + history_bytes(event, sizes), names

    def paid(self, partitions: tuple[str, ...]) -> None:
        """A change was charged for its epoch and these partitions."""
        if not self._is_this_second():
            self._second = int(self._clock())
            self._rewritten.clear()
        if len(self._rewritten) < _REWRITTEN_KEPT:
            self._rewritten.update(partitions)

    def refund(self) -> None:
        """What was charged is given back: whoever comes next pays for the epoch."""
        self._second = -1

    def _is_this_second(self) -> bool:
        return int(self._clock()) == self._second

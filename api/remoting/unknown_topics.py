# SPDX-License-Identifier: Apache-2.0
"""Topics that clients asked for and nobody has: which of them may be in the making. No I/O, no clock.

A producer asks for a topic before it sends the message that makes it. So an unknown topic that is asked for a second
time at once may be on its way: the broker has answered the message, and its registration comes a moment later.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from runtime.bounded import BoundedCache

RECENT_S: Final = 3.0
"""A client gives a message that long to be sent."""

_KEPT_BYTES: Final = 1024 * 1024
"""Some 2,000 topics."""


class UnknownTopics:
    """When each was asked for last; the one that was not asked for longest is forgotten first."""

    def __init__(self) -> None:
        self._asked: BoundedCache[str, float] = BoundedCache(_KEPT_BYTES)

    def was_asked(self, topic: str, now_s: float) -> bool:
        """Whether somebody has asked for it within the last `RECENT_S`; remembers that it is asked for now.

        Args:
            topic: Nobody has it, but somebody may (`remoting.codec.names.may_exist`).
            now_s: On a clock that only goes forward.
        """
        before_s = self._asked.get(topic)
        self._asked.put(topic, now_s, getsizeof(topic))
        return before_s is not None and now_s - before_s < RECENT_S

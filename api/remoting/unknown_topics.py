# SPDX-License-Identifier: Apache-2.0
"""Topics that clients asked for and nobody has: which of them may be in the making. No I/O, no clock.

A producer asks for a topic before it sends the message that makes it. So an unknown topic that is asked for a second
time at once may be on its way: the broker has answered the message, and its registration comes a moment later.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

RECENT_S: Final = 3.0
"""A client gives a message that long to be sent."""

_MAX_TOPICS: Final = 1024


class UnknownTopics:
    """When each was asked for last; the one that was not asked for longest is forgotten first."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str | None, float] = OrderedDict()

    def was_asked(self, topic: str | None, now_s: float) -> bool:
        """Whether somebody has asked for it within the last `RECENT_S`; remembers that it is asked for now.

        Args:
            topic: Nobody has it.
            now_s: On a clock that only goes forward.
        """
        before_s = self._asked.pop(topic, None)
        self._asked[topic] = now_s
        if len(self._asked) > _MAX_TOPICS:
            self._asked.popitem(last=False)
        return before_s is not None and now_s - before_s < RECENT_S

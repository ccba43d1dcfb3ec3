# SPDX-License-Identifier: Apache-2.0
"""Routes known to a client. Answers come in, callbacks for changes are called. No I/O.

Next to the `RouteTable` it keeps each topic's tag of the last answer. With the tag, the next NameServer can answer
"unchanged", or wait for a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from clients.route.changes import RouteChange
from clients.route.queues import clamped
from clients.route.table import Applied, RouteTable
from clients.route.transport import RouteAnswer

log = structlog.get_logger("routelake.route")

Listener = Callable[[RouteChange], None]

_NOTHING: Final = Applied(changed=False, change=None)


class RouteCache:
    """Topics are named with their namespace here.

    Attributes:
        table: Routes and what follows from them.
        heard: Topics that some NameServer has said something about.
    """

    def __init__(self, default_topic_queue_nums: int) -> None:
        """Knows nothing.

        Args:
            default_topic_queue_nums: Queues per broker for a topic that does not exist yet.
        """
        self.table = RouteTable()
        self.heard: set[str] = set()
        self._default_topic_queue_nums = default_topic_queue_nums
        self._tags: dict[str, str] = {}
        self._listeners: list[tuple[str | None, Listener]] = []

    def tag(self, topic: str) -> str | None:
        """Tag of the last answer about a topic."""
        return self._tags.get(topic)

    def take(self, topic: str, answer: RouteAnswer | None) -> Applied:
        """Take a NameServer's answer about a topic; None says that the tag still stands.

        Raises:
            OrderConfError: See `RouteTable.apply`.
        """
        self.heard.add(topic)
        if answer is None:
            known = None if topic in self.table.missing else self.table.routes.get(topic)
            if known is None or not self.table.needs_update(topic):
                return _NOTHING
            answer = RouteAnswer(known, self._tags.get(topic))
        if answer.route is None:
            applied = Applied(changed=False, change=self.table.gone(topic))
        else:
            applied = self.table.apply(topic, answer.route)
        self._tags.pop(topic, None)
        if answer.tag is not None:
            self._tags[topic] = answer.tag
        self._tell(applied.change)
        return applied

    def take_default(self, topic: str, answer: RouteAnswer | None) -> Applied:
        """Take the default topic's route for a topic that does not exist yet, with fewer queues.

        The topic's tag, that of its absence, stays: with it a NameServer can say when the topic has come into being.

        Raises:
            OrderConfError: See `RouteTable.apply`.
        """
        if answer is None or answer.route is None:
            return _NOTHING
        route = clamped(answer.route, self._default_topic_queue_nums)
        applied = self.table.apply(topic, route, is_default=True)
        self._tell(applied.change)
        return applied

    def forget(self, topic: str) -> None:
        """Drop everything known of a topic."""
        self.table.forget(topic)
        self.heard.discard(topic)
        self._tags.pop(topic, None)

    def listen(self, listener: Listener, topic: str | None) -> Callable[[], None]:
        """Call a function with every change, or with those of one topic. Returns what ends it."""
        entry = (topic, listener)
        self._listeners.append(entry)

        def end() -> None:
            self._listeners[:] = [known for known in self._listeners if known is not entry]

        return end

    def _tell(self, change: RouteChange | None) -> None:
        if change is None:
            return
        for topic, listener in list(self._listeners):
            if topic in (None, change.topic):
                try:
                    listener(change)
                except Exception:
                    log.exception("route change callback failed", topic=change.topic)

# SPDX-License-Identifier: Apache-2.0
"""How many topics each broker group has: counted for all groups at once, beside the event loop where there are many."""

from __future__ import annotations

import asyncio

from nameserver.view.apply import Topics
from nameserver.view.snapshot import RouteView
from nameserver.view.sorted_topics import OFF_LOOP_TOPICS
from security.admission.usage import count


class TopicCounts:
    """Kept as long as the topics stay the same. Lives on the gateway's event loop."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._counted: tuple[Topics, asyncio.Future[dict[str, int]]] | None = None

    async def get(self, view: RouteView, broker_name: str) -> int:
        """How many topics of a view a broker group has."""
        if len(view.topics) <= OFF_LOOP_TOPICS:
            return view.topic_count(broker_name)
        counted = self._counted
        if counted is None or counted[0] is not view.topics:
            counted = self._counted = view.topics, asyncio.ensure_future(asyncio.to_thread(count, view))
        return (await asyncio.shield(counted[1])).get(broker_name, 0)

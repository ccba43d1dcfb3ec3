# SPDX-License-Identifier: Apache-2.0
"""Lists of topics, encoded once for all who ask for the same while the topics stay the same.

Of 300,000 topics a list takes a tenth of a second or two, and is made anew after each change of them. So where there
are many it is made beside the event loop, which answers routes meanwhile.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Collection
from typing import Final

from nameserver.view.snapshot import RouteView
from nameserver.view.sorted_topics import OFF_LOOP_TOPICS, in_order
from remoting.codec.answers import encode_topic_list
from remoting.server.channel import SHARED_BYTES
from runtime.bounded import BoundedCache

_KEPT_BYTES: Final = 48 * 1024 * 1024

_Key = tuple[str, str]
_Sources = tuple[object, object]


class TopicLists:
    """Of one gateway. Lives on its event loop."""

    def __init__(self) -> None:
        """None is made yet."""
        self._bodies: BoundedCache[_Key, tuple[_Sources, bytes]] = BoundedCache(_KEPT_BYTES)
        self._making: dict[_Key, tuple[_Sources, asyncio.Future[bytes]]] = {}

    async def get(self, view: RouteView, kind: str, names: Callable[[], Collection[str]], cluster: str = "") -> bytes:
        """A TopicList of names, in order.

        Args:
            view: The names are of it.
            kind: Which of its topics.
            names: Says which; may be called in a thread.
            cluster: Of which cluster, where that makes a difference.
        """
        key: _Key = kind, cluster
        sources: _Sources = view.topics, view.clusters.get(cluster)
        known = self._bodies.get(key)
        if known is not None and _same(known[0], sources):
            return known[1]

        def make() -> bytes:
            return encode_topic_list(in_order(names()))

        if len(view.topics) <= OFF_LOOP_TOPICS:
            body = make()
        else:
            making = self._making.get(key)
            if making is None or not _same(making[0], sources):
                making = self._making[key] = sources, asyncio.ensure_future(asyncio.to_thread(make))
            try:
                body = await asyncio.shield(making[1])
            finally:
                if self._making.get(key) is making:
                    del self._making[key]
        if not cluster or len(body) >= SHARED_BYTES:  # there is no end of clusters that nobody is in
            self._bodies.put(key, (sources, body), len(body))
        return body


def _same(one: _Sources, other: _Sources) -> bool:
    return all(map(operator.is_, one, other))

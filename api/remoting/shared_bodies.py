# SPDX-License-Identifier: Apache-2.0
"""Bodies of answers, encoded once for as long as their sources stay the same. All receivers share the same bytes.

A list of 300,000 topics takes one or two tenths of a second, and is encoded again after each change of the topics. So
a long list is encoded in a thread, while the event loop answers routes.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Collection
from typing import Final

from nameserver.view.snapshot import RouteView
from nameserver.view.sorted_topics import OFF_LOOP_TOPICS, in_order
from remoting.codec.reply import encode_topic_list
from remoting.server.channel import SHARED_BYTES
from runtime.bounded import BoundedCache

_LISTS_BYTES: Final = 48 * 1024 * 1024
_BODIES_BYTES: Final = 16 * 1024 * 1024

_Key = tuple[str, str]
_Sources = tuple[object, object]


class SharedBodies:
    """Shared bodies of one gateway. Used on its event loop."""

    def __init__(self) -> None:
        """Start without encoded bodies."""
        self._bodies: BoundedCache[_Key, tuple[tuple[object, ...], bytes]] = BoundedCache(_BODIES_BYTES)

    def get(self, kind: str, name: str, sources: tuple[object, ...], encode: Callable[[], bytes]) -> bytes:
        """Return a body, encoded once for as long as its sources are the same objects."""
        known = self._bodies.get((kind, name))
        if known is not None and _same(known[0], sources):
            return known[1]
        body = encode()
        if len(body) >= SHARED_BYTES:
            self._bodies.put((kind, name), (sources, body), len(body))
        return body


class TopicLists:
    """Encoded topic lists of one gateway. Used on its event loop."""

    def __init__(self) -> None:
        """Start without encoded lists."""
        self._bodies: BoundedCache[_Key, tuple[_Sources, bytes]] = BoundedCache(_LISTS_BYTES)
        self._making: dict[_Key, tuple[_Sources, asyncio.Future[bytes]]] = {}

    async def get(self, view: RouteView, kind: str, names: Callable[[], Collection[str]], cluster: str = "") -> bytes:
        """Return the encoded TopicList of names, in order.

        Args:
            view: View that has the names.
            kind: Kind of the list, which selects the topics.
            names: Returns the names. It may be called in a thread.
            cluster: Cluster of the topics, if the kind depends on one.
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
        if not cluster or len(body) >= SHARED_BYTES:  # requests may name any number of empty clusters
            self._bodies.put(key, (sources, body), len(body))
        return body


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(map(operator.is_, one, other))

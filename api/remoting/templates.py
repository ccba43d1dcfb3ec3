# SPDX-License-Identifier: Apache-2.0
"""Route answers encoded once for each kind of query, bounded by what they really hold. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from remoting.reply import ReplyTemplate
from remoting.route_query import RouteQuery

_TEMPLATE_BYTES: Final = 2_100
"""Of a template and its query beside the body, measured with tracemalloc."""


class Templates:
    """Query to answer; what was not looked up for longest is forgotten. Lives on one event loop.

    Most topics of a cluster share a few bodies, so each body counts once, however many templates send it.

    Attributes:
        bytes: How much is held.
    """

    def __init__(self, max_bytes: int = 48 * 1024 * 1024) -> None:
        """Start empty.

        Args:
            max_bytes: Bound of what is held, bodies included.
        """
        self.bytes = 0
        self._max_bytes = max_bytes
        self._kept: OrderedDict[RouteQuery, ReplyTemplate] = OrderedDict()
        self._users: dict[int, int] = {}
        """id of a body to how many templates hold it."""

    def __len__(self) -> int:
        """How many are held."""
        return len(self._kept)

    def get(self, query: RouteQuery, body: bytes) -> ReplyTemplate | None:
        """The answer to a query, if it has this very body."""
        known = self._kept.get(query)
        if known is None or known.body is not body:
            return None
        self._kept.move_to_end(query)
        return known

    def put(self, query: RouteQuery, template: ReplyTemplate) -> list[RouteQuery]:
        """Keep an answer; returns the queries that were forgotten for it."""
        self._forget(query)
        self._kept[query] = template
        key = id(template.body)
        users = self._users[key] = self._users.get(key, 0) + 1
        self.bytes += _TEMPLATE_BYTES + (len(template.body) if users == 1 else 0)
        forgotten = []
        while self.bytes > self._max_bytes and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._forget(oldest)
            forgotten.append(oldest)
        return forgotten

    def _forget(self, query: RouteQuery) -> None:
        template = self._kept.pop(query, None)
        if template is None:
            return
        key = id(template.body)
        self._users[key] -= 1
        self.bytes -= _TEMPLATE_BYTES
        if not self._users[key]:
            del self._users[key]
            self.bytes -= len(template.body)

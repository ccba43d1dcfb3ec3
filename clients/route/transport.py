# SPDX-License-Identifier: Apache-2.0
"""Transport of route requests to a NameServer, and the answers."""

from __future__ import annotations

from typing import Protocol

import msgspec

from clients.route.errors import BadRouteError
from schemas.rocketmq_json import decode_topic_route
from schemas.route import TopicRouteData


class RouteAnswer(msgspec.Struct, frozen=True):
    """Answer about a topic: ``route`` is None for TOPIC_NOT_EXIST. ``tag`` identifies this answer."""

    route: TopicRouteData | None
    tag: str | None = None


class RouteTransport(Protocol):
    """Asks one address at a time, keeps its connections.

    Attributes:
        can_wait: Whether ``wait_s`` means anything.
    """

    can_wait: bool

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """Ask for a topic's route.

        Args:
            address: Whom.
            topic: With its namespace.
            timeout_s: For connecting and the answer together, on top of ``wait_s``.
            tag: Of what is known already.
            wait_s: With a tag: let the server answer only when it has something else, or after so long.

        Returns:
            None: what the tag stands for is still so.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
            AnswerError: An error other than TOPIC_NOT_EXIST.
            BadRouteError: An answer that cannot be read.
        """

    async def drop(self, address: str) -> None:
        """Close what leads to one address; the next fetch connects anew."""

    async def close(self) -> None:
        """Close everything."""


def decode_route(address: str, body: bytes) -> TopicRouteData:
    """A route as any NameServer since 3.x writes it, in either JSON dialect.

    Raises:
        BadRouteError: The body holds no route.
    """
    try:
        return decode_topic_route(body)
    except (ValueError, RecursionError) as error:
        raise BadRouteError(address, f"answered with something that is no route: {error}") from error

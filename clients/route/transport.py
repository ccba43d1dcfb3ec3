# SPDX-License-Identifier: Apache-2.0
"""Interface for route requests to a NameServer, and the answers."""

from __future__ import annotations

from typing import Protocol

import msgspec

from clients.route.errors import BadRouteError
from schemas.rocketmq_json import decode_topic_route
from schemas.route import TopicRouteData


class RouteAnswer(msgspec.Struct, frozen=True):
    """Answer for a topic. TOPIC_NOT_EXIST has no ``route`` (None). ``tag`` identifies the answer."""

    route: TopicRouteData | None
    tag: str | None = None


class RouteTransport(Protocol):
    """Transport of requests to one address at a time. It keeps its connections.

    Attributes:
        can_wait: Whether the transport supports ``wait_s``.
    """

    can_wait: bool

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """Ask for a topic's route.

        Args:
            address: Address of the NameServer.
            topic: Topic with its namespace.
            timeout_s: Time limit for connecting and the answer together, in addition to ``wait_s``, in seconds.
            tag: Tag of the known answer.
            wait_s: Duration of a long poll, in seconds, with a tag. The server answers after a change or this time.

        Returns:
            The answer, or None if the known answer with this tag is still valid.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
            AnswerError: The answer is an error other than TOPIC_NOT_EXIST.
            BadRouteError: The answer cannot be read.
        """

    async def drop(self, address: str) -> None:
        """Close the connections to one address. The next fetch connects again."""

    async def close(self) -> None:
        """Close all connections."""


def decode_route(address: str, body: bytes) -> TopicRouteData:
    """Decode a route from any NameServer since 3.x, in either JSON dialect.

    Raises:
        BadRouteError: The body is not a route.
    """
    try:
        return decode_topic_route(body)
    except (ValueError, RecursionError) as error:
        raise BadRouteError(address, f"answered with something that is no route: {error}") from error

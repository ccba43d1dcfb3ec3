# SPDX-License-Identifier: Apache-2.0
"""Errors of route lookups.

RoutelakeError
├── ClientError (remoting.errors)
│   └── BadRouteError    a NameServer's answer is not a route
├── RouteError
│   ├── NoRouteError       no NameServer knows the topic, or it has no usable queue (10005)
│   └── OrderConfError     the topic's order configuration cannot be read
└── SetupError (schemas.errors): an address list, a setting
"""

from __future__ import annotations

from typing import Final

from remoting.errors import ClientError
from schemas.errors import RoutelakeError

NOT_FOUND_TOPIC_EXCEPTION: Final = 10005
"""ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION."""


class RouteError(RoutelakeError):
    """There is no usable route."""


class NoRouteError(RouteError):
    """There is no route, or it has no usable queue. ``code`` is ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION."""

    def __init__(self, topic: str, message: str) -> None:
        self.topic = topic
        self.code = NOT_FOUND_TOPIC_EXCEPTION
        super().__init__(message, topic=topic, code=self.code)


class OrderConfError(RouteError):
    """orderTopicConf is not ``broker-a:8;broker-b:8`` (RocketMQ's client fails with an unchecked exception)."""


class BadRouteError(ClientError):
    """An answer is not a TopicRouteData. ``address`` is the address of the NameServer."""

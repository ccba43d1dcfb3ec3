# SPDX-License-Identifier: Apache-2.0
"""The NameServers of a broker. All are asked at the same time, and each has its own result.

Source (5.5.0): org.apache.rocketmq.broker.out.BrokerOuterAPI.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from clients.broker.config import BrokerConfig
from clients.broker.registration import (
    RegisterBrokerResult,
    Registration,
    heartbeat_request,
    needs_registration,
    query_data_version_request,
    register_request,
    register_result,
    register_topic_request,
    unregister_request,
)
from clients.broker.topic_config import TopicConfig
from remoting.client import RemotingClient
from remoting.errors import ClientError, ConnectError, ConnectionLostError
from schemas.broker import DataVersion
from schemas.errors import RoutelakeError

T = TypeVar("T")

COMMAND_TIMEOUT_S: Final = 3.0
"""Time limit of requests 104 and 217, in seconds (registerSingleTopicAll, unregisterBroker)."""
ATTEMPTS: Final = 3
"""Maximum number of attempts if the connection fails. Registrations may be repeated, because they are idempotent."""
PAUSE_S: Final = 0.1
"""Pause before the second attempt, in seconds. It doubles before each further attempt."""


class NameServer(Protocol):
    """One NameServer, over either protocol. Every method may raise a RoutelakeError."""

    address: str

    async def register(self, config: BrokerConfig, part: Registration, timeout_s: float) -> RegisterBrokerResult:
        """Send a registration, or one part of it."""

    async def register_topic(self, config: BrokerConfig, topic: TopicConfig, data_version: DataVersion) -> None:
        """Register one topic."""

    async def needs_registration(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> bool:
        """Return True if the NameServer lacks this version."""

    async def heartbeat(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> None:
        """Send a heartbeat, and do not wait for an answer."""

    async def unregister(self, config: BrokerConfig) -> None:
        """Unregister the broker."""


class RemotingNameServer:
    """A NameServer, stock or routelake, over the remoting protocol."""

    def __init__(self, address: str, client: RemotingClient) -> None:
        """Create a client. It connects at the first request.

        Args:
            address: Address as host:port.
            client: Remoting client. The caller closes it.
        """
        self.address = address
        self._client = client

    async def register(self, config: BrokerConfig, part: Registration, timeout_s: float) -> RegisterBrokerResult:
        """See `NameServer`."""
        return register_result(await self._client.call(self.address, register_request(config, part), timeout_s))

    async def register_topic(self, config: BrokerConfig, topic: TopicConfig, data_version: DataVersion) -> None:
        """See `NameServer`. Request 217 has no version."""
        await self._client.call(self.address, register_topic_request(config, topic), COMMAND_TIMEOUT_S)

    async def needs_registration(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> bool:
        """See `NameServer`."""
        request = query_data_version_request(config, data_version)
        return needs_registration(await self._client.ask(self.address, request, timeout_s), data_version)

    async def heartbeat(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> None:
        """See `NameServer`."""
        if config.compatible_with_old_name_srv:
            request = query_data_version_request(config, data_version)
        else:
            request = heartbeat_request(config)
        async with asyncio.timeout(timeout_s):
            await self._client.send_oneway(self.address, request)

    async def unregister(self, config: BrokerConfig) -> None:
        """See `NameServer`."""
        await self._client.call(self.address, unregister_request(config), COMMAND_TIMEOUT_S)


class ServerResult(msgspec.Struct, Generic[T]):
    """Result of a request to one NameServer.

    Attributes:
        address: Address of the NameServer.
        value: Answer, or None after an error.
        error: Error, or None after an answer.
        finished: End of the request, on `time.monotonic`, in seconds.
        attempts: Number of attempts.
    """

    address: str
    value: T | None
    error: RoutelakeError | None
    finished: float
    attempts: int


async def ask_all(
    servers: Iterable[NameServer], ask: Callable[[NameServer], Awaitable[T]], deadline_s: float
) -> list[ServerResult[T]]:
    """Ask all NameServers at the same time.

    Args:
        servers: The NameServers.
        ask: The request. It is repeated if the connection fails, so it must be idempotent.
        deadline_s: Maximum wait for all NameServers, in seconds.

    Returns:
        One result for each NameServer, in the order of ``servers``.
    """
    return list(await asyncio.gather(*(_ask(server, ask, deadline_s) for server in servers)))


async def _ask(server: NameServer, ask: Callable[[NameServer], Awaitable[T]], deadline_s: float) -> ServerResult[T]:
    attempts = 0
    error: RoutelakeError | None = None
    try:
        async with asyncio.timeout(deadline_s):
            while attempts < ATTEMPTS:
                if attempts:
                    await asyncio.sleep(PAUSE_S * 2 ** (attempts - 1))
                attempts += 1
                try:
                    return ServerResult(server.address, await ask(server), None, time.monotonic(), attempts)
                except (ConnectError, ConnectionLostError) as lost:
                    error = lost
    except TimeoutError:
        error = error or ClientError(server.address, f"no answer within {deadline_s:g} s")
    except RoutelakeError as other:
        error = other
    return ServerResult(server.address, None, error, time.monotonic(), attempts)


def first(results: Iterable[ServerResult[T]]) -> T | None:
    """The first answer in time. Only this one counts (BrokerController.handleRegisterBrokerResult)."""
    answered = [result for result in results if result.error is None]
    return min(answered, key=lambda result: result.finished).value if answered else None

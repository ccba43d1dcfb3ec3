# SPDX-License-Identifier: Apache-2.0
"""Registrations of one broker, full or incremental: one at a time, with one result for each NameServer.

Registrations are sent one after the other, because a NameServer accepts rows only with a DataVersion that is new to it.
If a change arrived with the version of a later change, the NameServer would ignore the later change.

Source (5.5.0): org.apache.rocketmq.broker.BrokerController (registerBrokerAll, registerIncrementBrokerData,
registerSingleTopicAll, doRegisterBrokerAll, handleRegisterBrokerResult).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from clients.broker import registration
from clients.broker.config import BrokerConfig
from clients.broker.nameservers import COMMAND_TIMEOUT_S, NameServer, ServerResult, ask_all, first
from clients.broker.registration import RegisterBrokerResult, Registration
from clients.broker.topic_config import TopicConfig, TopicTable
from schemas.broker import DataVersion

log = structlog.get_logger("routelake.broker")

RegisterResults = list[ServerResult[RegisterBrokerResult]]


class Registrar:
    """The NameServers of one broker, and their last answers.

    Attributes:
        config: Settings of the broker. Set them again after the port is known.
        last_results: Results of the last registration, one for each NameServer.
        master_addr: Address of the master, from the first answer.
        master_ha_addr: HA address of the master, from the first answer that has one.
    """

    def __init__(
        self,
        config: BrokerConfig,
        servers: Sequence[NameServer],
        snapshot: Callable[[], TopicTable],
        on_order_topics: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        """Create a registrar. It sends no request yet.

        Args:
            config: Settings of the broker.
            servers: NameServers to register with.
            snapshot: Function that returns the current topics. It is called at the turn of a registration.
            on_order_topics: Callback after each registration, with the topics that have an order configuration.
        """
        self.config = config
        self.last_results: RegisterResults = []
        self.master_addr: str | None = None
        self.master_ha_addr: str | None = None
        self._servers = servers
        self._snapshot = snapshot
        self._on_order_topics = on_order_topics
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def has_failed(self) -> bool:
        """Return True if the last registration failed at one or more NameServers."""
        return any(result.error is not None for result in self.last_results)

    async def register_all(self, *, force: bool, only_failed: bool = False) -> RegisterResults:
        """Register all topics.

        Args:
            force: Register without the question whether anything changed. Split registration never asks.
            only_failed: Register only with NameServers at which the last registration failed.

        Returns:
            One result for each NameServer, or an empty list if nothing has changed.
        """
        async with self._turn:
            table = self._snapshot()
            servers = self._failed() if only_failed else self._servers
            if not force and not self.config.enable_split_registration:
                timeout_s = self._timeout_s
                answers = await ask_all(
                    servers,
                    lambda server: server.needs_registration(self.config, table.data_version, timeout_s),
                    timeout_s,
                )
                if not any(answer.error is not None or answer.value for answer in answers):
                    return []
            return await self._register(await asyncio.to_thread(registration.full, self.config, table), servers)

    async def register_changed(self, changed: Sequence[TopicConfig], version: DataVersion) -> None:
        """Register new or changed topics with every NameServer (registerBrokerData).

        Args:
            changed: The topics as of this version.
            version: Version of the table after the change.
        """
        async with self._turn:
            if self._closed:
                return
            if not self.config.enable_single_topic_register:
                await self._register([registration.incremental(self.config, changed, version)], self._servers)
                return
            for topic in changed:
                results = await ask_all(
                    self._servers,
                    lambda server, topic=topic: server.register_topic(self.config, topic, version),  # type: ignore[misc]
                    COMMAND_TIMEOUT_S,
                )
                for result in results:
                    if result.error is not None:
                        log.warning(
                            "cannot register a topic at a NameServer", topic=topic.topic_name, error=str(result.error)
                        )

    async def heartbeat(self, version: DataVersion) -> list[ServerResult[None]]:
        """Send a heartbeat to every NameServer."""
        timeout_s = self.config.send_heartbeat_timeout_millis / 1000
        return await ask_all(self._servers, lambda server: server.heartbeat(self.config, version, timeout_s), timeout_s)

    async def unregister(self) -> None:
        """Unregister the broker from every NameServer. Nothing is registered from now on."""
        self._closed = True
        with contextlib.suppress(TimeoutError):  # a running registration should arrive before the unregistration
            async with asyncio.timeout(COMMAND_TIMEOUT_S), self._turn:
                pass
        results = await ask_all(self._servers, lambda server: server.unregister(self.config), COMMAND_TIMEOUT_S)
        for result in results:
            if result.error is not None:
                log.warning("cannot unregister from a NameServer", namesrv=result.address, error=str(result.error))

    async def _register(self, parts: Sequence[Registration], servers: Sequence[NameServer]) -> RegisterResults:
        """doRegisterBrokerAll and handleRegisterBrokerResult."""
        if self._closed:
            return []
        timeout_s = self._timeout_s

        async def register(server: NameServer) -> RegisterBrokerResult:
            """Send the parts one after the other, and return the last answer."""
            result = RegisterBrokerResult()
            for part in parts:
                result = await server.register(self.config, part, timeout_s)
            return result

        results = await ask_all(servers, register, timeout_s)
        fresh = {result.address: result for result in results}
        self.last_results = [fresh.pop(old.address, old) for old in self.last_results] + list(fresh.values())
        for result in results:
            if result.error is not None:
                log.warning("cannot register at a NameServer", namesrv=result.address, error=str(result.error))
        answer = first(results)
        if answer is not None:
            if answer.ha_server_addr is not None:
                self.master_ha_addr = answer.ha_server_addr
            self.master_addr = answer.master_addr
            await self._on_order_topics(answer.order_topics)
        return results

    @property
    def _timeout_s(self) -> float:
        return self.config.register_broker_timeout_mills / 1000

    def _failed(self) -> list[NameServer]:
        failed = {result.address for result in self.last_results if result.error is not None}
        return [server for server in self._servers if server.address in failed]

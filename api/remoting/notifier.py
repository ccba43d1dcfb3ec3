# SPDX-License-Identifier: Apache-2.0
"""Notifications of brokers that the smallest brokerId of their group has changed (NOTIFY_MIN_BROKER_ID_CHANGE).

As in RocketMQ the request is oneway, over a new connection to the broker's address, and it is not repeated. A broker
gets the same information with its next GET_BROKER_MEMBER_GROUP. If there are several gateways, those that have a
broker's registration notify it, as several NameServers would.

Source: RouteInfoManager.notifyMinBrokerIdChanged, NettyRemotingClient.invokeOneway (5.5.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from nameserver.view.min_broker import Notification, notifications
from nameserver.view.snapshot import RouteView
from remoting.codec.frame import FLAG_ONEWAY, RemotingCommand, encode_frame
from schemas.codes import RequestCode

log = structlog.get_logger("routelake.gateway")

TIMEOUT_S: Final = 3.0
"""Maximum time for one broker, in seconds (NettyClientConfig.connectTimeoutMillis)."""
MAX_AT_ONCE: Final = 64


class Notifier:
    """Sends notifications from the gateway's event loop, in the background.

    Args:
        is_bound: Returns whether (brokerName, address) is registered over a connection of this gateway.
    """

    def __init__(self, is_bound: Callable[[str, str], bool]) -> None:
        self._is_bound = is_bound
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def view_moved(self, before: RouteView, after: RouteView) -> None:
        """Notify the brokers of groups with a new smallest brokerId."""
        for notification in notifications(before, after):
            if self._is_bound(notification.broker_name, notification.to):
                task = asyncio.create_task(self._send(notification))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until every notification has been sent, or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _send(self, notification: Notification) -> None:
        request = RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notification.ext_fields(), flag=FLAG_ONEWAY)
        host, _, port = notification.to.rpartition(":")
        try:
            async with self._slots, asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                try:
                    writer.write(encode_frame(request))
                    await writer.drain()
                finally:
                    writer.close()
                    await writer.wait_closed()
        except (OSError, ValueError, TimeoutError) as error:
            log.warning(
                "cannot notify a broker of the new smallest brokerId",
                broker=notification.broker_name,
                address=notification.to,
                error=str(error) or type(error).__name__,
            )

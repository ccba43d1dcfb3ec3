# SPDX-License-Identifier: Apache-2.0
"""Tasks that follow topics: one for each topic, and one that removes offline brokers.

Each task asks again after a pause, or uses a long poll if the NameServer supports it. No error ends a task. While no
NameServer answers, the task asks again as soon as one may be asked (`NameServers`).

Source (5.5.0): MQClientInstance.startScheduledTask, LatencyFaultToleranceImpl.startDetector.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from clients.route.brokers import find_broker_address_in_publish
from clients.route.cache import RouteCache
from clients.route.errors import OrderConfError
from clients.route.fetcher import NoneReadyError, RouteFetcher
from clients.route.latency import FaultTable
from clients.route.settings import RouteSettings
from remoting.errors import AnswerError, ClientError

log = structlog.get_logger("routelake.route")

_LEAST_PAUSE_S: Final = 0.05
_DETECT_ROUND_S: Final = 3.0


class Followers:
    """The tasks of one client. They start with the first topic."""

    def __init__(
        self,
        cache: RouteCache,
        fetcher: RouteFetcher,
        faults: FaultTable,
        settings: RouteSettings,
        choice: random.Random,
    ) -> None:
        """Create an object without tasks."""
        self._cache = cache
        self._fetcher = fetcher
        self._faults = faults
        self._settings = settings
        self._choice = choice
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._own: list[asyncio.Task[None]] = []
        self._polls = 0
        self._closed = False

    def follow(self, name: str) -> None:
        """Keep a topic's route up to date from now on."""
        if self._closed or name in self._tasks:
            return
        self._tasks[name] = asyncio.create_task(self._follow(name), name=f"route {name}")
        if not self._own:
            self._own.append(asyncio.create_task(self._sweep(), name="route sweep"))
            if self._settings.start_detector_enable:
                self._own.append(asyncio.create_task(self._detect(), name="route detector"))

    def forget(self, name: str) -> None:
        """Stop following a topic."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End every task."""
        self._closed = True
        tasks = [*self._tasks.values(), *self._own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, name: str) -> None:
        early_s = 0.0
        is_new = name not in self._cache.heard  # the first question was not answered
        while True:
            try:
                if is_new:
                    is_new = False
                    await asyncio.sleep(self._settings.back_off.initial_s)
                    await self._ask(name, 0.0)
                early_s = await self._follow_once(name, early_s)
            except Exception:  # a defect; without this, the route of this topic would never change again
                log.exception("cannot update the route of a topic", topic=name)
                await asyncio.sleep(self._jittered(self._settings.poll_name_server_interval_s))

    async def _follow_once(self, name: str, early_s: float) -> float:
        """Wait and ask. Returns the pause before the next long poll, in seconds.

        Args:
            name: Name of the topic.
            early_s: Pause before this long poll, in seconds.
        """
        settings = self._settings
        if not self._may_wait(name):
            await asyncio.sleep(self._jittered(settings.poll_name_server_interval_s))
            await self._ask(name, 0.0)
            return early_s
        self._polls += 1
        try:
            await asyncio.sleep(early_s)
            begin = self._now_s()
            news = await self._ask(name, settings.long_poll_s)
        finally:
            self._polls -= 1
        # A gateway with too many long polls, or a proxy, may answer early without a change. This must not become a busy
        # loop.
        if not news and self._now_s() - begin < settings.long_poll_s / 2:
            return min(settings.poll_name_server_interval_s, max(_LEAST_PAUSE_S, early_s * 2))
        return 0.0

    def _may_wait(self, name: str) -> bool:
        return (
            self._fetcher.can_wait and self._cache.tag(name) is not None and self._polls < self._settings.max_long_polls
        )

    async def _ask(self, name: str, wait_s: float) -> bool:
        """Ask until a NameServer answers. The first request may wait. Returns whether anything is new."""
        warned = False
        while True:
            try:
                answer = await self._fetcher.fetch(name, tag=self._cache.tag(name), wait_s=wait_s, only_ready=True)
                return self._cache.take(name, answer).change is not None
            except (AnswerError, OrderConfError) as error:
                log.warning("cannot update the route of a topic", topic=name, error=str(error))
                return False
            except (ClientError, NoneReadyError) as error:
                pause_s = _LEAST_PAUSE_S + self._fetcher.next_ready_s
                if not warned and isinstance(error, ClientError):
                    log.warning("no NameServer answers; using the cached route", topic=name, error=str(error))
                    warned = True
            wait_s = 0.0
            await asyncio.sleep(pause_s)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._jittered(self._settings.poll_name_server_interval_s))
            self._cache.clean_offline_brokers()

    async def _detect(self) -> None:
        settings, faults = self._settings, self._faults
        while True:
            await asyncio.sleep(min(_DETECT_ROUND_S, settings.detect_interval_s))
            for name in faults.due(round(self._now_s() * 1000), round(settings.detect_interval_s * 1000)):
                address = find_broker_address_in_publish(self._cache.brokers, name)
                topic = next(iter(self._tasks), None)
                if address is None:
                    faults.remove(name)
                elif topic and await self._fetcher.remoting.detect(address, topic, settings.detect_timeout_s):
                    faults.detected(name)

    def _jittered(self, interval_s: float) -> float:
        return interval_s * self._choice.uniform(1.0 - self._settings.jitter, 1.0)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

# SPDX-License-Identifier: Apache-2.0
"""Many brokers in one process, for rehearsals and benchmarks: real connections and registrations, no listening side.

Each broker has its own connection to every NameServer, as a NameServer takes the end of a connection for the end of a
broker. First registrations go out as fast as `at_once` lets them; after that each broker has its own moment in every
period, so that rounds are spread evenly.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import msgspec
from rich.table import Table

from clients.broker.config import BrokerConfig
from clients.broker.fleet_topics import FleetBroker, SharedTopics, fleet_configs
from clients.broker.http import name_server
from clients.broker.nameservers import COMMAND_TIMEOUT_S, ask_all
from clients.broker.registration import Registration
from clients.credentials import Credentials
from clients.tls import ClientTls
from remoting.client import RemotingClient
from schemas.errors import SetupError

PERCENTILES = (50, 99, 99.9)


class Kind(msgspec.Struct):
    """One kind of request.

    Attributes:
        took_ms: Of each answered one.
        failed: How many were not answered, or with an error.
        sent_bytes: Of bodies, to all NameServers.
    """

    took_ms: list[float] = msgspec.field(default_factory=list)
    failed: int = 0
    sent_bytes: int = 0

    @property
    def count(self) -> int:
        """Answered or not."""
        return len(self.took_ms) + self.failed

    def percentile(self, percent: float) -> float:
        """Milliseconds within which so many per cent of the answers came; 0 without any."""
        if not self.took_ms:
            return 0.0
        ordered = sorted(self.took_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class FleetReport(msgspec.Struct):
    """Counts of a fleet.

    Attributes:
        brokers: How many it has.
        topics: How many each of them has.
        first: First registrations.
        rounds: Later full ones, and questions whether one is needed.
        changes: Incremental ones.
        errors: What went wrong, by message without the broker's part.
        first_took_s: From the start until every broker had been registered or given up.
    """

    brokers: int
    topics: int
    first: Kind = msgspec.field(default_factory=Kind)
    rounds: Kind = msgspec.field(default_factory=Kind)
    changes: Kind = msgspec.field(default_factory=Kind)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    first_took_s: float = 0.0

    def line(self, registered: int, elapsed_s: float) -> str:
        """One line of progress."""
        failed = self.first.failed + self.rounds.failed + self.changes.failed
        return (
            f"{elapsed_s:6.0f} s  {registered}/{self.brokers} brokers registered, {self.rounds.count} rounds, "
            f"{self.changes.count} changes, {failed} failed, p99 of rounds {self.rounds.percentile(99):.0f} ms"
        )

    def table(self, registered: int) -> Table:
        """The end of it."""
        table = Table(title=f"{registered} of {self.brokers} brokers registered, {self.topics} topics each")
        table.add_column("request")
        for column in ("answered", "failed", "MB sent", *(f"p{percent:g} ms" for percent in PERCENTILES), "max ms"):
            table.add_column(column, justify="right")
        for name, kind in (("first registration", self.first), ("round", self.rounds), ("change", self.changes)):
            table.add_row(
                name,
                str(len(kind.took_ms)),
                str(kind.failed),
                f"{kind.sent_bytes / 1e6:.1f}",
                *(f"{kind.percentile(percent):.1f}" for percent in PERCENTILES),
                f"{max(kind.took_ms, default=0.0):.1f}",
            )
        table.caption = f"all first registrations within {self.first_took_s:.1f} s"
        return table


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a fleet of simulated brokers."""

    namesrvs: list[str]
    """host:port each, or http://host:port."""
    brokers: int = 300
    topics: int = 10_000
    """Topics of each broker, without the built-in ones."""
    clusters: int = 1
    period_s: float = 30.0
    """Between two rounds of one broker; unlike a real one's, not kept to 10 to 60 s."""
    changes_per_s: float = 0.0
    """Topics that change somewhere in the fleet."""
    duration_s: float = 0.0
    """Seconds until the fleet stops. 0: it runs until it receives a signal."""
    at_once: int = 32
    """Full registrations under way at a time."""
    timeout_s: float = 60.0
    force_register: bool = True
    """Send everything in every round; without it, ask first."""
    unregister: bool = True
    """At the end; otherwise the brokers are just gone."""
    seed: int = 1
    http_token: str = ""
    credentials: Credentials | None = None
    tls: ClientTls | None = None


class Fleet:
    """A running fleet.

    Attributes:
        members: Its brokers.
        report: What they have done so far.
    """

    def __init__(self, settings: FleetSettings) -> None:
        """Prepare it; connects to nobody yet.

        Raises:
            SetupError: A NameServer address or a number is impossible.
        """
        if settings.brokers < 1 or settings.topics < 0 or settings.clusters < 1 or settings.at_once < 1:
            raise SetupError("a fleet needs at least one broker, one cluster, and one registration at a time")
        if settings.period_s <= 0 or settings.changes_per_s < 0 or settings.duration_s < 0 or settings.timeout_s <= 0:
            raise SetupError("period and timeout must be above 0, rate and duration not below")
        self._settings = settings
        shared = SharedTopics(settings.topics, settings.seed)
        base = BrokerConfig(force_register=settings.force_register)
        self.members = [
            FleetBroker(config, shared, _now_ms())
            for config in fleet_configs(settings.brokers, settings.clusters, base)
        ]
        self.report = FleetReport(settings.brokers, self.members[0].topic_count)
        self._at_once = asyncio.Semaphore(settings.at_once)
        self._in_turn = [asyncio.Lock() for _ in self.members]
        self._sends: set[asyncio.Task[bool]] = set()
        self._is_ending = False
        keys = settings.credentials
        tls = None if settings.tls is None else settings.tls.context()
        self._clients = [RemotingClient(sign=None if keys is None else keys.sign, tls=tls) for _ in self.members]
        self._servers = [
            [name_server(address, client, settings.http_token, tls) for address in settings.namesrvs]
            for client in self._clients
        ]

    @property
    def registered(self) -> int:
        """Brokers that some NameServer has accepted."""
        return sum(member.registered for member in self.members)

    async def register(self, done: Callable[[], None] = lambda: None) -> None:
        """Register every broker for the first time.

        Args:
            done: Called after each, whatever came of it.
        """
        start = time.monotonic()

        async def one(index: int) -> None:
            member = self.members[index]
            member.registered = await self._send(self.report.first, index, member.full)
            done()

        await asyncio.gather(*(one(index) for index in range(len(self.members))))
        self.report.first_took_s = time.monotonic() - start

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Rounds and changes go on inside this context."""
        tasks = [asyncio.create_task(self._rounds(index)) for index in range(len(self.members))]
        if self._settings.changes_per_s and self._settings.topics:
            tasks.append(asyncio.create_task(self._changes()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Wait for what is under way, unregister, if that is wanted, and hang up.

        A NameServer may come to a registration after it has seen its connection end; such a broker would stay there.
        """
        self._is_ending = True
        await asyncio.gather(*self._sends, return_exceptions=True)
        async with AsyncExitStack() as stack:
            for client in self._clients:
                stack.push_async_callback(client.close)
            if self._settings.unregister:
                await asyncio.gather(*(self._unregister(index) for index in range(len(self.members))))

    async def _unregister(self, index: int) -> None:
        if self.members[index].registered:
            async with self._at_once:
                config = self.members[index].config
                await ask_all(self._servers[index], lambda server: server.unregister(config), COMMAND_TIMEOUT_S)

    async def _rounds(self, index: int) -> None:
        """One broker's rounds, each at its own moment of the period."""
        member, period_s = self.members[index], self._settings.period_s
        due = time.monotonic() + period_s * (index + 1) / len(self.members)
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + period_s, time.monotonic())
            if member.registered and not self._settings.force_register and not await self._is_needed(index):
                continue
            member.registered |= await self._send(self.report.rounds, index, member.full)

    async def _is_needed(self, index: int) -> bool:
        """Return True if any NameServer does not know this version."""
        member, timeout_s = self.members[index], self._settings.timeout_s
        start = time.monotonic()
        answers = await ask_all(
            self._servers[index],
            lambda server: server.needs_registration(member.config, member.data_version, timeout_s),
            timeout_s,
        )
        needed = any(answer.error is not None or answer.value for answer in answers)
        if not needed:
            self.report.rounds.took_ms += [1000 * (answer.finished - start) for answer in answers]
        return needed

    async def _changes(self) -> None:
        """Change a topic somewhere, at random moments."""
        choose = random.Random(self._settings.seed)  # noqa: S311 (a workload, no secret)
        running: set[asyncio.Task[bool]] = set()
        due = time.monotonic()
        try:
            while True:
                due += choose.expovariate(self._settings.changes_per_s)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                index = choose.randrange(len(self.members))
                part = self.members[index].change(choose.randrange(self._settings.topics), _now_ms())
                # an incremental registration may not create a broker: what changed goes with its next round
                if self.members[index].registered:
                    task = asyncio.create_task(self._send(self.report.changes, index, lambda part=part: part))  # type: ignore[misc]
                    running.add(task)
                    task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()

    async def _send(self, kind: Kind, index: int, make: Callable[[], Registration]) -> bool:
        """Send one registration to every NameServer, after its broker's earlier ones; whether any accepted it.

        Cancelled, it goes on until it is answered; `close` waits for it.
        """
        task = asyncio.create_task(self._answered(kind, index, make))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        return await asyncio.shield(task)

    async def _answered(self, kind: Kind, index: int, make: Callable[[], Registration]) -> bool:
        member, timeout_s = self.members[index], self._settings.timeout_s
        async with self._in_turn[index], self._at_once:
            if self._is_ending:
                return False
            part = make()
            start = time.monotonic()
            results = await ask_all(
                self._servers[index], lambda server: server.register(member.config, [part], timeout_s), timeout_s
            )
        for result in results:
            kind.sent_bytes += len(part.entries) * result.attempts
            if result.error is None:
                kind.took_ms.append(1000 * (result.finished - start))
            else:
                kind.failed += 1
                self.report.errors[str(result.error)] += 1
        return any(result.error is None for result in results)


def _now_ms() -> int:
    return round(time.time() * 1000)

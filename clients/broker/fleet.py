# SPDX-License-Identifier: Apache-2.0
"""Many brokers in one process, for rehearsals and benchmarks: real connections and registrations, no listening socket.

Each broker has its own connection to every NameServer, because a NameServer treats the end of a connection as the end
of a broker. The first registrations go out as fast as `at_once` allows. Afterwards each broker has its own time in each
period, so that the rounds are spread evenly.
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
    """Figures of one kind of request.

    Attributes:
        took_ms: Durations of the answered requests, in milliseconds.
        failed: Number of requests without an answer or with an error.
        sent_bytes: Size of the bodies to all NameServers, in bytes.
    """

    took_ms: list[float] = msgspec.field(default_factory=list)
    failed: int = 0
    sent_bytes: int = 0

    @property
    def count(self) -> int:
        """Number of requests, answered or not."""
        return len(self.took_ms) + self.failed

    def percentile(self, percent: float) -> float:
        """Time within which so many per cent of the answers came, in milliseconds, or 0 without answers."""
        if not self.took_ms:
            return 0.0
        ordered = sorted(self.took_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class FleetReport(msgspec.Struct):
    """Counts of a fleet.

    Attributes:
        brokers: Number of brokers.
        topics: Number of topics of each broker.
        first: First registrations.
        rounds: Later full registrations, and the questions whether one is needed.
        changes: Incremental registrations.
        errors: Number of errors, by message without the broker's part.
        first_took_s: Time from the start until the first registration of every broker succeeded or failed, in seconds.
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
        """Table of all figures, for the end of a run."""
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
    """NameServers, as host:port or http://host:port."""
    brokers: int = 300
    topics: int = 10_000
    """Number of topics of each broker, without the built-in topics."""
    clusters: int = 1
    period_s: float = 30.0
    """Time between two rounds of one broker, in seconds. Unlike for a real broker, it is not limited to 10 to 60 s."""
    changes_per_s: float = 0.0
    """Number of topics that change in the fleet in a second."""
    duration_s: float = 0.0
    """Seconds until the fleet stops. 0: it runs until it receives a signal."""
    at_once: int = 32
    """Maximum number of concurrent full registrations."""
    timeout_s: float = 60.0
    force_register: bool = True
    """Send all topics in every round. If false, ask first whether anything changed."""
    unregister: bool = True
    """Unregister the brokers at the end. If false, only their connections end."""
    seed: int = 1
    http_token: str = ""
    credentials: Credentials | None = None
    tls: ClientTls | None = None


class Fleet:
    """A running fleet.

    Attributes:
        members: Brokers of the fleet.
        report: Figures of their requests so far.
    """

    def __init__(self, settings: FleetSettings) -> None:
        """Create a fleet without connections.

        Raises:
            SetupError: A NameServer address or a number is not valid.
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
        """Number of brokers that at least one NameServer has accepted."""
        return sum(member.registered for member in self.members)

    async def register(self, done: Callable[[], None] = lambda: None) -> None:
        """Register every broker for the first time.

        Args:
            done: Callback after each registration, successful or not.
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
        """Run rounds and changes inside this context."""
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
        """Wait for running registrations, unregister if set, and close the connections.

        If a connection ended during a registration, a NameServer could apply the registration after the end of the
        connection. The broker would then stay registered.
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
        """Run the rounds of one broker, each at the broker's own time in the period."""
        member, period_s = self.members[index], self._settings.period_s
        due = time.monotonic() + period_s * (index + 1) / len(self.members)
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + period_s, time.monotonic())
            if member.registered and not self._settings.force_register and not await self._is_needed(index):
                continue
            member.registered |= await self._send(self.report.rounds, index, member.full)

    async def _is_needed(self, index: int) -> bool:
        """Return True if any NameServer lacks this version."""
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
        """Change topics of random brokers at random times."""
        choose = random.Random(self._settings.seed)  # noqa: S311 (a workload, no secret)
        running: set[asyncio.Task[bool]] = set()
        due = time.monotonic()
        try:
            while True:
                due += choose.expovariate(self._settings.changes_per_s)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                index = choose.randrange(len(self.members))
                part = self.members[index].change(choose.randrange(self._settings.topics), _now_ms())
                # an incremental registration must not create a broker, so the next round sends the change
                if self.members[index].registered:
                    task = asyncio.create_task(self._send(self.report.changes, index, lambda part=part: part))  # type: ignore[misc]
                    running.add(task)
                    task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()

    async def _send(self, kind: Kind, index: int, make: Callable[[], Registration]) -> bool:
        """Send one registration to every NameServer, after the broker's earlier ones. Returns whether any accepted it.

        If the caller is cancelled, the registration continues until it is answered. `close` waits for it.
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
                self._servers[index], lambda server: server.register(member.config, part, timeout_s), timeout_s
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

# SPDX-License-Identifier: Apache-2.0
"""Peers in processes of their own, and 300 honest brokers that read, too. The hostile ones: `quota_attacks`.

In one process they would wait for each other's interpreter, and that time would count as the gateway's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import random
import ssl
import statistics
import struct
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from dev.model import codes
from dev.model.client import decode_frame, encode_frame
from tests.e2e.hostile import registration

BROKERS: Final = 300
TOPICS: Final = 20
"""Of each honest broker."""

READS: Final = ("route", "newcomer")

_SPAWN: Final = multiprocessing.get_context("spawn")
_OVER_S: Final = 120.0


class Peers:
    """A process that works until it is stopped, and then reports what it saw."""

    def __init__(self, run: Callable[..., None], port: int, *more: str) -> None:
        """Not started yet.

        Args:
            run: Gets the port and a pipe: reports that all are there, waits for the end, reports what it saw.
            port: Of the gateway.
            more: What else it takes.
        """
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=run, args=(port, theirs, *more))
        self.saw: Any = None

    def __enter__(self) -> Peers:
        self._process.start()
        self._hear("to begin")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._pipe.send("stop")
            if kind is None:
                self.saw = self._hear("what it saw")
        finally:
            self._process.join(_OVER_S)
            if self._process.is_alive():
                self._process.kill()

    def _hear(self, what: str) -> Any:
        assert self._pipe.poll(_OVER_S), f"waited {_OVER_S:g} s for a process of peers: {what}"
        return self._pipe.recv()


class Seen(msgspec.Struct):
    """What the honest saw.

    Attributes:
        answers: How many of each code.
        took_s: How long each took, by what was asked.
        errors: What went wrong.
    """

    answers: dict[int, int]
    took_s: dict[str, list[float]]
    errors: list[str]

    @property
    def p99s_ms(self) -> dict[str, float]:
        """By what was asked."""
        return {what: round(1000 * statistics.quantiles(took_s, n=100)[98], 1) for what, took_s in self.took_s.items()}

    def check(self) -> None:
        """Nothing failed, nothing was refused."""
        assert not self.errors, self.errors[0]
        assert set(self.answers) == {codes.SUCCESS}, self.answers
        assert self.answers[codes.SUCCESS] > BROKERS

    def check_against(self, before: Seen) -> None:
        """Reads took less than 50 ms; writes, too, unless the disk took longer already before the attack."""
        for what, p99_ms in self.p99s_ms.items():
            limit_ms = 50.0 if what in READS else max(50.0, 2 * before.p99s_ms[what])
            assert p99_ms < limit_ms, (what, p99_ms, before.p99s_ms)


def alone(port: int, during_s: float, authority: str = "") -> Seen:
    """What honest clients see without an attack."""
    with Peers(honest, port, authority) as fleet:
        time.sleep(during_s)
    seen: Seen = fleet.saw
    seen.check()
    return seen


def honest(port: int, pipe: Connection, authority: str = "") -> None:
    """Run brokers of one address, each over a connection of its own, and short-lived clients.

    About once a second each broker sends a heartbeat, every fifth time a registration, and asks for a route. Ten times
    a second a client connects, asks for a route, and disconnects.

    Args:
        port: Port of the gateway.
        pipe: Pipe to the test.
        authority: File of a certificate: all connect by TLS, and verify.
    """
    pipe.send(asyncio.run(_Fleet(port, pipe, authority).run()))


class _Fleet:
    def __init__(self, port: int, pipe: Connection, authority: str) -> None:
        self._port, self._pipe = port, pipe
        self._tls = ssl.create_default_context(cafile=authority) if authority else None
        self._ready = 0
        self._over = asyncio.Event()
        self._answers: Counter[int] = Counter()
        self._took_s: dict[str, list[float]] = {"heartbeat": [], "registration": [], "route": [], "newcomer": []}

    async def run(self) -> Seen:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._over.set)
        everybody = (*(self._broker(number) for number in range(BROKERS)), self._newcomers())
        done = await asyncio.gather(*everybody, return_exceptions=True)
        loop.remove_reader(self._pipe.fileno())
        return Seen(dict(self._answers), self._took_s, [repr(found) for found in done if found is not None])

    async def _broker(self, number: int) -> None:
        reader, writer = await self._connect()
        name, addr = f"honest-{number}", f"10.1.{number // 250}.{number % 250}:10911"
        fields = {"brokerName": name, "brokerAddr": addr, "clusterName": "c"}
        register, heartbeat = registration(name, addr, 1, TOPICS), encode_frame(codes.BROKER_HEARTBEAT, fields)

        async def ask(what: str, frame: bytes) -> None:
            began_s = time.monotonic()
            writer.write(frame)
            self._answers[await _code(reader)] += 1
            self._took_s[what].append(time.monotonic() - began_s)

        await ask("registration", register)
        self._ready += 1
        if self._ready == BROKERS:
            for took_s in self._took_s.values():
                took_s.clear()
            self._pipe.send("all have registered")
        for round_number in itertools.count(1):
            if await self._is_over(random.uniform(0.5, 1.5)):
                break
            await ask(*(("registration", register) if round_number % 5 == 0 else ("heartbeat", heartbeat)))
            await ask("route", route_of(number))
        writer.close()

    async def _newcomers(self) -> None:
        for number in itertools.count():
            if await self._is_over(0.1):
                break
            began_s = time.monotonic()
            reader, writer = await self._connect()
            writer.write(route_of(number))
            self._answers[await _code(reader)] += 1
            self._took_s["newcomer"].append(time.monotonic() - began_s)
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)

    async def _is_over(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._over.wait(), within_s)
        return False


def route_of(number: int) -> bytes:
    return encode_frame(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": f"topic-of-an-ordinary-length-{number % TOPICS:06d}"})


async def _code(reader: asyncio.StreamReader) -> int:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    code: int = decode_frame(await reader.readexactly(size)).header["code"]
    return code

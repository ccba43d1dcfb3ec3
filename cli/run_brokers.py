# SPDX-License-Identifier: Apache-2.0
"""Process of a broker agent or of a fleet, which runs until a stop is requested."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog
import uvloop
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.foreign_text import printable
from cli.plain_console import PlainConsole
from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from clients.broker.fleet import Fleet, FleetSettings
from clients.credentials import Credentials
from clients.tls import ClientTls
from runtime.process import StopSignal

log = structlog.get_logger("routelake.broker")


def run_broker(
    config: BrokerConfig,
    namesrvs: Sequence[str],
    *,
    ignored: Sequence[str] = (),
    http_token: str = "",
    keys: Credentials | None = None,
    tls: ClientTls | None = None,
) -> int:
    """Run a broker agent until SIGTERM or SIGINT. Returns 0 after a stop.

    Args:
        config: Settings of the broker.
        namesrvs: See `BrokerAgent`.
        ignored: Keys of the configuration file that have no effect here, for one line in the log.
        http_token: Bearer token for the HTTP API.
        keys: Credentials that sign remoting requests.
        tls: TLS settings of all connections. None: all connections except ``https://`` are plain.

    Raises:
        SetupError: The agent cannot start with these settings.
    """
    if ignored:
        log.info("settings that mean nothing to a broker without messages", keys=", ".join(ignored))
    agent = BrokerAgent(config, namesrvs, http_token=http_token, credentials=keys, tls=tls)
    return uvloop.run(_run_agent(StopSignal().listen(), agent))


async def _run_agent(stop_signal: StopSignal, agent: BrokerAgent) -> int:
    stop = stop_signal.event()
    try:
        await agent.start()
        reached = [result.address for result in agent.registrar.last_results if result.error is None]
        log.info(
            "serving",
            broker=agent.config.broker_name,
            id=agent.config.broker_id,
            address=agent.config.broker_addr,
            topics=len(agent.topics.table),
            registered_with=reached,
        )
        await stop.wait()
    finally:
        await agent.stop()
    log.info("stopped", broker=agent.config.broker_name)
    return 0


_LINE_EVERY_S = 10.0
"""Time between two progress lines without a terminal, in seconds."""
_ERRORS_SHOWN = 5
_WIDTH = 120
"""Width of the table in a file, in characters."""


def run_fleet(settings: FleetSettings) -> int:
    """Run a fleet until its time is over, or until SIGTERM or SIGINT.

    Returns:
        0 if every broker has been registered, otherwise 1.

    Raises:
        SetupError: The fleet cannot run with these settings.
    """
    return uvloop.run(_run_fleet(StopSignal().listen(), settings))


async def _run_fleet(stop_signal: StopSignal, settings: FleetSettings) -> int:
    screen = PlainConsole(stderr=True)
    stop = stop_signal.event()
    fleet = Fleet(settings)
    start = time.monotonic()
    try:
        await _until(stop, _register(fleet, settings, screen))
        if not stop.is_set():
            async with fleet.running():
                await _watch(fleet, settings, screen, stop, start)
        registered = fleet.registered
    finally:
        await fleet.close()
    result, table = PlainConsole(), fleet.report.table(registered)
    if not result.is_terminal:
        result, table.box = PlainConsole(width=_WIDTH), None
    result.print(table)
    for message, count in fleet.report.errors.most_common(_ERRORS_SHOWN):
        screen.print(printable(f"{count} times: {message}"), soft_wrap=True)
    return 0 if registered == settings.brokers else 1


async def _register(fleet: Fleet, settings: FleetSettings, screen: PlainConsole) -> None:
    columns = (TextColumn("registering"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen) as progress:
        bar = progress.add_task("registering", total=settings.brokers)
        await fleet.register(lambda: progress.advance(bar))


async def _watch(
    fleet: Fleet, settings: FleetSettings, screen: PlainConsole, stop: asyncio.Event, start: float
) -> None:
    """Show the progress until the end."""
    end = start + settings.duration_s if settings.duration_s else float("inf")
    with Live(console=screen, refresh_per_second=2) if screen.is_terminal else contextlib.nullcontext() as live:
        step_s = 0.5 if live is not None else _LINE_EVERY_S
        while not stop.is_set() and (now := time.monotonic()) < end:
            line = fleet.report.line(fleet.registered, now - start)
            if live is not None:
                live.update(line)
            else:
                screen.print(line, highlight=False, soft_wrap=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(step_s, end - now)):
                    await stop.wait()


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends or a stop is requested."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        task.result()
    else:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

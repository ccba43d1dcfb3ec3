# SPDX-License-Identifier: Apache-2.0
"""The gateway process: remoting and HTTP on one event loop, over one `Gateway`."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from pathlib import Path

import structlog
import uvloop

from api.gateway.worker_metrics import WorkerMetrics
from api.http.server import serve_http
from api.http.settings import HttpSettings
from api.settings.gateway import GatewaySettings
from api.wiring import GatewayParts
from eventlog.open import open_reader
from eventlog.sqlite.file import wal_bytes
from eventlog.urls import is_kafka, sqlite_path
from eventlog.worker import LogWorker
from lake.delta.ddl import check_format
from remoting.server.channel import host_and_port
from remoting.server.settings import RemotingSettings
from runtime.children import on_parent_exit
from runtime.machine import check_file_limit
from runtime.memory import give_back_free_pages, give_back_large_blocks
from runtime.process import StopSignal, tell_ready
from runtime.supervised_tasks import critical_task, on_death, watch_threads
from security.accounts_file import AccountsFile
from security.policy import Policy
from security.quotas import Quotas
from security.tls_config import TlsSettings
from security.tls_rotation import Tls

log = structlog.get_logger("routelake.gateway")

Address = tuple[str, int]

DRAIN_S = 8.0
"""Time for requests in progress after a stop, in seconds."""


def run_gateway(
    settings: GatewaySettings,
    log_url: str,
    *,
    http: Address,
    remoting: Address,
    remoting_settings: RemotingSettings,
    http_settings: HttpSettings,
    policy: Policy,
    accounts: AccountsFile | None,
    tls_settings: TlsSettings | None = None,
    quotas: Quotas | None = None,
    worker_socket: Path | None = None,
) -> int:
    """Run a gateway until SIGTERM, SIGINT or the parent's end.

    Returns:
        Exit code: 0 after a stop, 1 if the process that writes the log, or a thread or task of this process, has died.

    Raises:
        SetupError: A port is in use, a setting is unusable, or the log or the lake is unusable.
        UnavailableError: The log cannot be reached.
    """
    check_format(settings.lake_dir)
    give_back_large_blocks()
    gc.disable()  # until `_calm_collector`, because objects of the start stay and need no repeated scans
    check_file_limit(remoting_settings.max_connections + http_settings.max_connections)
    stop = StopSignal().listen()
    on_parent_exit(stop.set)
    worker = LogWorker(log_url, settings.gateway_id, settings.gap_s, round(settings.max_clock_leap_s * 1000))
    tls = None if tls_settings is None else Tls(tls_settings)
    reader = partial(open_reader, log_url)
    parts = GatewayParts(settings, worker, reader, remoting_settings, http_settings, policy, accounts, tls, quotas)
    if not is_kafka(log_url):
        parts.metrics.follow_wal(partial(wal_bytes, sqlite_path(log_url)))
    if settings.lake_url and is_kafka(log_url):
        from lake.announce import Announcements

        announcements = Announcements(log_url, parts.gateway.follower)
        announcements.start()
        parts.gateway.on_stop(announcements.stop)
    if worker_socket is not None:
        parts.metrics.workers = WorkerMetrics(worker_socket, parts.metrics.text)
    return uvloop.run(_run(stop, parts, worker, http, remoting))


async def _run(
    stop_signal: StopSignal, parts: GatewayParts, worker: LogWorker, http: Address, remoting: Address
) -> int:
    stop = stop_signal.event()
    deaths: list[str] = []

    def end(what: str, _error: BaseException) -> None:
        deaths.append(what)
        stop_signal.set()

    watch_threads()
    forget = on_death(end)
    gateway, server = parts.gateway, parts.server
    try:
        await gateway.start()
        parts.access.start()
        _calm_collector()
        giving_back = critical_task(asyncio.create_task(give_back_free_pages()), "release of free memory")
        if parts.tls is not None:
            parts.tls.start()
        workers = parts.metrics.workers
        if workers is not None:
            await workers.start()
        try:
            await server.start(*remoting, option="--remoting HOST:PORT (ROUTELAKE_REMOTING)")
            assert server.ticker is not None
            critical_task(server.ticker, "connection deadlines")

            def bound(_port: int) -> None:
                tell_ready()
                log.info(
                    "serving", remoting=host_and_port(remoting), http=host_and_port(http), epoch=gateway.view.epoch
                )

            http_task = asyncio.create_task(
                serve_http(
                    parts.app,
                    *http,
                    stop=stop,
                    on_bound=bound,
                    reuse_port=server.settings.reuse_port,
                    tls=None if parts.tls is None else parts.tls.http,
                    handshakes=parts.handshakes,
                )
            )
            endings = {http_task, *(asyncio.create_task(event.wait()) for event in (stop, worker.died))}
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await parts.close_remoting(DRAIN_S)
            await http_task
        finally:
            giving_back.cancel()
            parts.access.stop()
            if parts.tls is not None:
                parts.tls.stop()
            if workers is not None:
                await workers.stop()
            await gateway.stop()
    finally:
        forget()
        await worker.close()
    log.info("stopped", epoch=gateway.view.epoch)
    return 1 if worker.died.is_set() or deaths else 0


def _calm_collector() -> None:
    """Collect garbage less often: a view has millions of objects that stay, and each request makes few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()

# SPDX-License-Identifier: Apache-2.0
"""One broker agent on an event loop: its topics (`broker_topics`), a listening socket, and the NameServers.

Source (5.5.0): org.apache.rocketmq.broker.BrokerController.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from enum import Enum
from typing import Final

import msgspec
import structlog

from clients.broker.admin import BrokerHandler
from clients.broker.broker_topics import LOCK_TIMEOUT_S, BrokerTopics
from clients.broker.config import BrokerConfig, check
from clients.broker.http import name_server
from clients.broker.registrar import Registrar
from clients.credentials import Credentials
from clients.tls import ClientTls
from remoting.client import RemotingClient
from remoting.codec.frame import RemotingCommand
from remoting.server.server import RemotingServer
from schemas.broker import MASTER_ID
from schemas.codes import RequestCode

log = structlog.get_logger("routelake.broker")

FIRST_ROUND_MS: Final = 10_000
MIN_PERIOD_MS: Final = 10_000
MAX_PERIOD_MS: Final = 60_000
FIRST_HEARTBEAT_MS: Final = 1_000
RETRY_MS: Final = 3_000
_NEVER: Final = float("inf")
_CLOSE_GRACE_S: Final = 3.0


class Task(Enum):
    """Scheduled task of a broker."""

    ROUND = "register with every NameServer"
    RETRY = "register with those that failed"
    HEARTBEAT = "send a heartbeat"


def register_period_ms(configured_ms: int) -> int:
    """Return registerNameServerPeriod within 10 to 60 seconds, in milliseconds."""
    return max(MIN_PERIOD_MS, min(configured_ms, MAX_PERIOD_MS))


class Cadence:
    """The timetable of one broker after its first registration. Times are from a steady clock, in milliseconds.

        0 s        10 s        40 s        70 s             registrations, at the default period of 30 s
        |-----------|-----------|-----------|----->
          | | | | | | | | | | | | | | | | |                 heartbeats every second, with enableSlaveActingMaster

    A NameServer that could not be reached is tried again every three seconds. RocketMQ checks for recovered NameServers
    at the same interval, but then waits for the next round. No I/O. Source (5.5.0): BrokerController (start,
    scheduleSendHeartbeat).
    """

    def __init__(self, config: BrokerConfig, now_ms: float) -> None:
        """Start the timetable."""
        self._period_ms = register_period_ms(config.register_name_server_period)
        self._heartbeat_ms = max(1, config.broker_heartbeat_interval)
        self._next: dict[Task, float] = {Task.ROUND: now_ms + FIRST_ROUND_MS}
        if config.enable_slave_acting_master:
            self._next[Task.HEARTBEAT] = now_ms + FIRST_HEARTBEAT_MS

    def wait_ms(self, now_ms: float) -> float:
        """Milliseconds until the next task is due."""
        return max(0.0, min(self._next.values(), default=_NEVER) - now_ms)

    def due(self, now_ms: float) -> list[Task]:
        """Return the due tasks and count them as done. Missed times are not repeated."""
        tasks = [task for task in Task if self._next.get(task, _NEVER) <= now_ms]
        for task in tasks:
            if task is Task.RETRY:
                del self._next[task]
            else:
                every_ms = self._period_ms if task is Task.ROUND else self._heartbeat_ms
                missed = (now_ms - self._next[task]) // every_ms
                self._next[task] += (missed + 1) * every_ms
        return [task for task in tasks if task is not Task.RETRY or Task.ROUND not in tasks]

    def registered(self, now_ms: float, *, failures: bool) -> None:
        """Note the end of a registration. After failures, the next try comes before the next round."""
        if failures:
            self._next[Task.RETRY] = now_ms + RETRY_MS
        else:
            self._next.pop(Task.RETRY, None)


class BrokerAgent:
    """One broker. After `start`, it registers by itself. `stop` unregisters it.

    Attributes:
        config: Settings. After the start they have the actual port.
        topics: The topics, for reading.
        broker_topics: The topics, for changes.
        registrar: Registrations of the topics, and the last answers of the NameServers.
        min_broker_id: The smallest live brokerId of the group, if a NameServer has reported a change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        namesrvs: Sequence[str],
        *,
        http_token: str = "",
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        """Create an agent. It opens no file and no connection before `start`.

        Args:
            config: Settings of the broker. Without `store_path_root_dir`, topics are in memory only. If `listen_port`
                is 0, a free port is used.
            namesrvs: NameServers: host:port for the remoting protocol, http://host:port for routelake's HTTP API.
            http_token: Bearer token for the HTTP API.
            credentials: Credentials that sign remoting requests.
            tls: TLS settings of all connections. None: all connections except ``https://`` are plain. If they have a
                certificate, the listening socket accepts TLS too.
            lock_timeout_s: See LOCK_TIMEOUT_S.

        Raises:
            SetupError: The configuration or an address is not valid.
        """
        self.config = check(config)
        self.min_broker_id: int | None = None
        self.started_ms = 0
        self.broker_topics = BrokerTopics(
            config, self._now_ms, lambda *changed: self.registrar.register_changed(*changed), lock_timeout_s
        )
        self.topics = self.broker_topics.topics
        context = None if tls is None else tls.context()
        self._client = RemotingClient(
            on_request=self._on_request,
            sign=None if credentials is None else credentials.sign,
            tls=context,
        )
        servers = [name_server(address, self._client, http_token, context) for address in dict.fromkeys(namesrvs)]
        self.registrar = Registrar(config, servers, self.topics.snapshot, self.broker_topics.mark_ordered)
        self._server = RemotingServer(
            BrokerHandler(self, self.broker_topics), tls=None if tls is None else tls.listener()
        )
        self._loop_task: asyncio.Task[None] | None = None
        self._stopped = False

    # --- start and stop ---

    async def start(self) -> None:
        """Load the topics, listen, register with every NameServer, and start the timetable.

        A NameServer that cannot be reached does not prevent the start.

        Raises:
            SetupError: topics.json cannot be read, or the port cannot be listened on.
        """
        await self.broker_topics.load()
        host, port = self.config.broker_ip1, self.config.listen_port
        await self._server.start(host, port, option="--listen HOST:PORT")
        self.config = msgspec.structs.replace(self.config, listen_port=self._server.port)
        self.registrar.config = self.config
        self.started_ms = self._now_ms()
        await self.registrar.register_all(force=True)
        self._loop_task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Unregister everywhere, then close the port (BrokerController.shutdown)."""
        if self._stopped:
            return
        self._stopped = True
        if self._loop_task is not None:
            await self.registrar.unregister()
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])
        await self._server.close(_CLOSE_GRACE_S)
        await self._client.close()

    async def _run(self) -> None:
        """Run rounds, retries and heartbeats until cancelled. A NameServer that hangs delays no heartbeat."""
        cadence = Cadence(self.config, _steady_ms())
        cadence.registered(_steady_ms(), failures=self.registrar.has_failed)
        registered = asyncio.Event()
        registration: asyncio.Task[None] | None = None

        async def register(task: Task) -> None:
            force = self.config.force_register or task is Task.RETRY
            await _carry_on(task, self.registrar.register_all(force=force, only_failed=task is Task.RETRY))
            cadence.registered(_steady_ms(), failures=self.registrar.has_failed)
            registered.set()

        async with asyncio.TaskGroup() as jobs:
            while True:
                registered.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(cadence.wait_ms(_steady_ms()) / 1000):
                        await registered.wait()
                for task in cadence.due(_steady_ms()):
                    if task is Task.HEARTBEAT:
                        jobs.create_task(_carry_on(task, self.registrar.heartbeat(self.topics.data_version)))
                    elif registration is None or registration.done():
                        registration = jobs.create_task(register(task))

    # --- registration ---

    @property
    def master_addr(self) -> str | None:
        """Address of the master, for a slave, from the last answer of a NameServer (SlaveSynchronize.masterAddr)."""
        return self.registrar.master_addr

    def _on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """Handle a request from a NameServer: only 905, which is oneway."""
        if request.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE:
            self.min_broker_id = int(request.ext("minBrokerId") or MASTER_ID)
            log.info(
                "smallest brokerId changed",
                namesrv=address,
                broker_id=self.min_broker_id,
                addr=request.ext("minBrokerAddr"),
            )
        return None

    def _now_ms(self) -> int:
        return round(time.time() * 1000)


async def _carry_on(task: Task, work: Awaitable[object]) -> None:
    """Run a scheduled task, and log its failure, so that the timetable continues."""
    try:
        await work
    except Exception:
        log.exception("scheduled task failed", task=task.value)


def _steady_ms() -> float:
    return time.monotonic() * 1000

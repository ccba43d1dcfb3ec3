# SPDX-License-Identifier: Apache-2.0
"""One broker on an event loop: the rules of `topics`, a file, a listening socket, and the NameServers.

A change of topics goes through one lock::

    lock (3 s for a creation while sending) -> change the table -> write topics.json -> unlock -> register -> answer

so that two senders to the same unknown topic create it once, and whoever is answered finds it at the NameServers that
could be reached. Who holds the registration lock may take the table's, never the other way round.

Sources (5.5.0): org.apache.rocketmq.broker.BrokerController, TopicConfigManager, AbstractSendMessageProcessor.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from clients.addresses import NAMESRV_PORT, host_port
from clients.broker.admin import BrokerHandler
from clients.broker.cadence import Cadence, Task
from clients.broker.config import BrokerConfig, check
from clients.broker.http import HttpNameServer
from clients.broker.nameservers import NameServer, RemotingNameServer, ServerResult
from clients.broker.persistence import TopicFile
from clients.broker.registrar import RegisterResults, Registrar
from clients.broker.sending import SendRequest, check_name, check_queue
from clients.broker.topic_config import TopicConfig
from clients.broker.topics import Creation, TopicConfigManager
from clients.broker.validator import RETRY_GROUP_TOPIC_PREFIX
from remoting.client import RemotingClient
from remoting.frame import RemotingCommand
from remoting.server import RemotingServer
from schemas.broker import MASTER_ID
from schemas.codes import RequestCode
from schemas.errors import SetupError

log = structlog.get_logger("routelake.broker")

LOCK_TIMEOUT_S: Final = 3.0
"""How long a creation waits for the table (TopicConfigManager.LOCK_TIMEOUT_MILLIS)."""
_CLOSE_GRACE_S: Final = 3.0


class BrokerAgent:
    """One broker. `start` it, then let it be; `stop` unregisters it.

    Attributes:
        config: With the port that it really listens on, once started.
        topics: Read them at will; change them through the methods here.
        min_broker_id: The smallest living brokerId of the group, if a NameServer has told of a change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        namesrvs: Sequence[str],
        *,
        http_token: str = "",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Touches nothing yet.

        Args:
            config: Of the broker; without `store_path_root_dir` topics are in memory only, `listen_port` 0 takes a
                free one.
            namesrvs: host:port for the remoting protocol, http://host:port for routelake's HTTP API.
            http_token: For the HTTP API.
            lock_timeout_s: See LOCK_TIMEOUT_S.
            clock: Seconds since the epoch, for versions.

        Raises:
            SetupError: The configuration or an address is impossible.
        """
        self.config = check(config)
        self.topics = TopicConfigManager(config, round(clock() * 1000))
        self.min_broker_id: int | None = None
        self.started_ms = 0
        self._clock = clock
        self._file = TopicFile(config.topics_file) if config.store_path_root_dir else None
        self._client = RemotingClient(on_request=self._on_request)
        servers = [_name_server(address, self._client, http_token) for address in dict.fromkeys(namesrvs)]
        self._registrar = Registrar(config, servers, self.topics.snapshot, self._mark_ordered)
        self._lock_timeout_s = lock_timeout_s
        self._table_lock = asyncio.Lock()
        self._server = RemotingServer(BrokerHandler(self))
        self._loop_task: asyncio.Task[None] | None = None
        self._stopped = False

    # --- life ---

    async def start(self) -> None:
        """Load the topics, listen, register with every NameServer once, and go on doing so.

        A NameServer that cannot be reached does not keep it from starting.

        Raises:
            SetupError: topics.json cannot be read, or the port cannot be listened on.
        """
        await self._load()
        host, port = self.config.broker_ip1, self.config.listen_port
        try:
            await self._server.start(host, port)
        except SetupError as error:
            reason = str(error).rpartition(" with --remoting")[0]
            raise SetupError(f"{reason} with --listen HOST:PORT") from error
        self.config = msgspec.structs.replace(self.config, listen_port=self._server.port)
        self._registrar.config = self.config
        self.started_ms = self._now_ms()
        await self.register_all(force=True)
        self._loop_task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Unregister everywhere, then close the port (BrokerController.shutdown)."""
        if self._stopped:
            return
        self._stopped = True
        if self._loop_task is not None:
            await self._registrar.unregister()
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])
        await self._server.close(_CLOSE_GRACE_S)
        await self._client.close()

    async def _load(self) -> None:
        if self._file is None:
            return
        loaded = await asyncio.to_thread(self._file.load)
        if loaded.warning:
            log.warning("topics.json", problem=loaded.warning)
        if loaded.table is not None:
            self.topics.load(loaded.table)
        if loaded.table is None or loaded.warning:
            await self._persist()

    async def _run(self) -> None:
        """Rounds, retries and heartbeats until cancelled; a NameServer that hangs in a round holds up no heartbeat."""
        cadence = Cadence(self.config, _steady_ms())
        cadence.registered(_steady_ms(), failures=self._registrar.has_failed)
        registered = asyncio.Event()
        registration: asyncio.Task[None] | None = None

        async def register(task: Task) -> None:
            force = self.config.force_register or task is Task.RETRY
            await _carry_on(task, self.register_all(force=force, only_failed=task is Task.RETRY))
            cadence.registered(_steady_ms(), failures=self._registrar.has_failed)
            registered.set()

        async with asyncio.TaskGroup() as jobs:
            while True:
                registered.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(cadence.wait_ms(_steady_ms()) / 1000):
                        await registered.wait()
                for task in cadence.due(_steady_ms()):
                    if task is Task.HEARTBEAT:
                        jobs.create_task(_carry_on(task, self.heartbeat()))
                    elif registration is None or registration.done():
                        registration = jobs.create_task(register(task))

    # --- registration ---

    @property
    def last_results(self) -> RegisterResults:
        """Of the last registration with each NameServer."""
        return self._registrar.last_results

    @property
    def master_addr(self) -> str | None:
        """Of a slave: where its master is, as the NameServer last said (SlaveSynchronize.masterAddr)."""
        return self._registrar.master_addr

    @property
    def master_ha_addr(self) -> str | None:
        """Where to replicate from; kept when an answer names none."""
        return self._registrar.master_ha_addr

    async def register_all(self, *, force: bool, only_failed: bool = False) -> RegisterResults:
        """Register all topics; see `Registrar.register_all`."""
        return await self._registrar.register_all(force=force, only_failed=only_failed)

    async def heartbeat(self) -> list[ServerResult[None]]:
        """Say that the broker is alive, without its topics (sendHeartbeat)."""
        return await self._registrar.heartbeat(self.topics.data_version)

    async def _mark_ordered(self, order_topics: Sequence[str]) -> None:
        async with self._table_lock:
            if self.topics.update_order_topics(order_topics, self._now_ms()):
                await self._persist()

    def _on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """What a NameServer asks of a broker: only 905, which wants no answer."""
        if request.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE:
            self.min_broker_id = int(request.ext("minBrokerId") or MASTER_ID)
            log.info("minBrokerId", namesrv=address, broker_id=self.min_broker_id, addr=request.ext("minBrokerAddr"))
        return None

    # --- topics ---

    async def topic_for_send(self, request: SendRequest, producer: str) -> TopicConfig:
        """The topic that a message goes to, created if need be (msgCheck).

        Raises:
            RefusedError: The message may not be sent.
        """
        check_name(self.config, self.topics, request.topic)
        found = self.topics.table.get(request.topic)
        if found is None:
            found = await self._create(
                request.topic,
                lambda now_ms: self.topics.create_topic_in_send_message(
                    request.topic,
                    request.default_topic,
                    request.default_topic_queue_nums,
                    request.topic_sys_flag,
                    now_ms,
                ),
            )
        if found is None and request.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            found = await self.needed_topic(request.topic, 1, topic_sys_flag=request.topic_sys_flag)
        return check_queue(request, found, producer)

    async def needed_topic(
        self, topic: str, queue_nums: int, *, is_order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """A topic of the broker's own: %RETRY%group, %DLQ%group, half messages; None if the table stays locked."""
        found = self.topics.table.get(topic)
        if found is not None and found.order == is_order:
            return found
        return await self._create(
            topic,
            lambda now_ms: self.topics.create_topic_in_send_message_back(
                topic, queue_nums, now_ms, is_order=is_order, topic_sys_flag=topic_sys_flag
            ),
        )

    async def tran_check_max_time_topic(self) -> TopicConfig | None:
        """Where transactions end that were checked too often; None if the table stays locked."""
        return await self._create("", self.topics.create_topic_of_tran_check_max_time)

    async def update_topics(self, edited: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Create or replace topics, persist and register them.

        Raises:
            BadRequestError: Attribute edits that do not apply.
        """
        async with self._table_lock:
            changed = self.topics.update_topic_configs(edited, self._now_ms())
            version = self.topics.data_version
            await self._persist()
        await self._registrar.register_changed(changed, version)
        return changed

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Forget topics. NameServers are not told, as in RocketMQ."""
        async with self._table_lock:
            gone = [topic for topic in topics if self.topics.delete_topic(topic, self._now_ms())]
            if gone:
                await self._persist()
        log.info("topics deleted", topics=gone)

    async def _create(self, topic: str, create: Callable[[int], Creation]) -> TopicConfig | None:
        """Create under the lock; None when it refuses, or the lock cannot be had in time."""
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                await self._table_lock.acquire()
        except TimeoutError:
            log.warning("topic not created: the table stayed locked", topic=topic, seconds=self._lock_timeout_s)
            return None
        try:
            creation = create(self._now_ms())
            version = self.topics.data_version
            if creation.changed:
                await self._persist()
        finally:
            self._table_lock.release()
        if creation.config is None:
            log.warning("topic not created", topic=topic, because=creation.refusal)
        elif creation.created:
            log.info("topic created", topic=creation.config.topic_name, queues=creation.config.write_queue_nums)
            await self._registrar.register_changed([creation.config], version)
        return creation.config

    async def _persist(self) -> None:
        """Write topics.json, under the table's lock.

        A failure is logged, as in RocketMQ: the next change writes everything again.
        """
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.persist, self.topics.snapshot())
        except OSError as error:
            log.error("topics.json was not written", file=str(self._file.path), error=str(error))

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)


def _name_server(address: str, client: RemotingClient, http_token: str) -> NameServer:
    if "://" in address:
        return HttpNameServer(address, http_token)
    return RemotingNameServer(host_port(address, "--namesrv", NAMESRV_PORT), client)


async def _carry_on(task: Task, work: Awaitable[object]) -> None:
    """Do it; whatever goes wrong, the next time must come."""
    try:
        await work
    except Exception:
        log.exception("not done", task=task.value)


def _steady_ms() -> float:
    return time.monotonic() * 1000

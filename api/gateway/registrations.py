# SPDX-License-Identifier: Apache-2.0
"""REGISTER_BROKER, for both APIs: writing and answering of a registration, at the lowest cost.

A broker sends its whole registration every 30 s, mostly the same bytes. There are three cases, from cheap to expensive:

1. The same bytes as before, over any connection. They are neither decoded nor encoded again.
2. Other bytes with the same topics as this broker's last registration at this gateway. They are decoded.
3. Any other registration.

In the first two cases the registration is written without topics, if the state machine says that it changes nothing
(`changes_nothing`). All other registrations are written in full. The state machine alone cannot decide this, because
the parts of a split registration take turns. If the state machine needs topics at the registration's place on the log,
the registration is written again with them. The same happens if the live view does not have the registration in time.
With deleteTopicWithBrokerRegistration it always needs them.

`RegistrationCache` has the last registration of each broker. A connection has its last heartbeat
(`remoting.server.channel.Connection`).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from sys import getsizeof
from typing import Final, NamedTuple

import msgspec
import zstandard

from api.gateway.gateway import Gateway, Receipt, Written
from api.gateway.large_registrations import LargeRegistrations, ReadRegistration, Turns, becomes_large, is_large
from api.gateway.metrics import Metrics
from nameserver.view.conversions import changes_nothing
from nameserver.view.snapshot import RegistrationResult, RouteView
from remoting.codec.bounds import address_of_peer
from remoting.codec.commands import RefusedError, RequestContext, read_bool, to_event
from remoting.codec.frame import RemotingCommand
from remoting.codec.registration import inflated_bytes
from runtime.bounded import BoundedCache
from schemas.codes import V5_0_0
from schemas.errors import QuotaError
from schemas.events import Actor, Channel, EventEncoder, RegisterBroker, encode, routing_key
from schemas.kv import ORDER_TOPIC_CONFIG
from schemas.outcomes import TOPICS_REQUIRED
from security.admission.admission import Sender

_LARGE_AT_A_TIME: Final = 3
"""Maximum number of large registrations between reading and durability. Each holds its whole event."""
_OFF_LOOP_TOPICS: Final = 500
"""Number of topics above which an event is encoded off the event loop."""

_ONE_WAY_S: Final = 120.0
"""Time for which one registration counts for `may_come_one_way`, in seconds. A broker registers every 10 to 60 s
(BrokerConfig.registerNameServerPeriod)."""

_REGISTRATIONS_BYTES: Final = 48 * 1024 * 1024
"""Size for some 20,000 brokers. The broker with the oldest registration is forgotten first, and cached again later."""

HEARTBEAT_BYTES: Final = 4_000
"""Maximum memory of the heartbeat that a connection keeps, in bytes. So 10,000 connections keep at most 40 MB."""

_LARGEST_BYTES: Final = 20 * 1024
"""Maximum size of a cached request without its topics. A request with thousands of mappings, or odd fields, is not
cached."""

_OBJECTS_BYTES: Final = 1_000
"""Size of the event, its fields and the payload as objects without their contents, in bytes."""

_Broker = tuple[str | None, str | None, str | None]
"""clusterName, brokerName, brokerAddr."""
Request = tuple[int, dict[str, str] | None, bytes]
"""Version and fields of the header, and SHA-256 of the body. No peer can make another body with the same digest."""


class Registered(NamedTuple):
    """A registration on the log, and the answer for its broker.

    Attributes:
        event: The registration. It may lack its topics.
        receipt: Receipt of the write.
        master: Address of the master, for a slave.
        order_topic_config: Namespace of that name. None if the option is off, or if the namespace has never had a key.
            A deleted key has the value None. While nothing in the namespace changes, it is the same object.
    """

    event: RegisterBroker
    receipt: Receipt
    master: RegistrationResult
    order_topic_config: Mapping[str, str | None] | None


class Registrations:
    """Registrations of one gateway's brokers. Used on its event loop, and ends with the gateway."""

    def __init__(self, gateway: Gateway, metrics: Metrics) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._counter = cache(metrics.registrations.labels)
        """Counter of the registrations of a listener with an outcome. There are few of both."""
        self._encoder = EventEncoder()
        self._last = RegistrationCache()
        self._large = LargeRegistrations()
        self._large_at_a_time = Turns(_LARGE_AT_A_TIME)
        self._reading = Turns(1)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="registration-reader")
        self._begun = 0
        """Number of requests so far, except large ones, which take seconds."""
        self._under_way: OrderedDict[int, None] = OrderedDict()
        """Numbers of the requests in progress, in their order of arrival."""
        self._settling: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Waiters for the requests up to a number, in that order."""
        self._arriving: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """Waiters for a change that a registration may bring, with their conditions."""
        self._one_way_until_s = 0.0
        self._counting: asyncio.Task[None] | None = None
        gateway.on_stop(self._stop)
        gateway.shown.follow(self._view_moved)

    def _stop(self) -> None:
        self._large.close()
        self._reader.shutdown(wait=False, cancel_futures=True)

    @property
    def may_come_one_way(self) -> bool:
        """Return whether a broker before 5.0.0 has registered here recently.

        Such a broker does not wait for the answer to the registration of a new topic
        (TopicConfigManager.createTopicInSendMessageMethod).
        """
        return time.monotonic() < self._one_way_until_s

    def _view_moved(self, _before: RouteView, _after: RouteView) -> None:
        for future, is_shown in self._arriving.items():
            if is_shown():
                _wake(future)

    async def settled(self, timeout_s: float) -> None:
        """Wait until all earlier requests are in the live view, or have failed. Large requests are excepted.

        Args:
            timeout_s: Maximum wait, in seconds.
        """
        await asyncio.sleep(0)  # then the requests of this turn of the loop have begun
        if not self._under_way:
            return
        while self._settling and self._settling[0][1].done():
            self._settling.popleft()  # its waiter has given up
        future = asyncio.get_running_loop().create_future()
        self._settling.append((self._begun, future))
        await _wait(future, timeout_s)

    async def arrived(self, is_shown: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a change by a registration that may come one-way. Return at once if `may_come_one_way` is false.

        Args:
            is_shown: Returns whether the view has the change. Called whenever the view moves.
            timeout_s: Maximum wait, in seconds.
        """
        loop = asyncio.get_running_loop()
        if is_shown() or not self.may_come_one_way:
            return
        future = loop.create_future()
        self._arriving[future] = is_shown
        try:
            await _wait(future, timeout_s)
        finally:
            del self._arriving[future]

    async def register(self, event: RegisterBroker, sender: Sender, body_bytes: int) -> Registered:
        """Register a broker.

        Args:
            event: Registration with its topics.
            sender: Sender admitted for this request.
            body_bytes: Size of the request's body, for the metrics.

        Raises:
            As `Gateway.propose`.
        """
        self._metrics.registration_bytes.observe(body_bytes)
        receipt = await self._register(event, sender)
        self._last.keep(event)
        return self._answer(event, receipt)

    async def register_request(
        self, command: RemotingCommand, sender: Sender, channel: Channel, let_go: Callable[[], None]
    ) -> Registered | None:
        """Register the broker that a REGISTER_BROKER request names.

        Args:
            command: Request.
            sender: Sender admitted for this request.
            channel: Connection of the request.
            let_go: Callback for a large request, as soon as its body is not needed any more.

        Returns:
            None if the request changes nothing, and the answer is the ordinary OK.

        Raises:
            RefusedError: The answer is an error.
            As `Gateway.propose`.
        """
        if command.version < V5_0_0:
            self._one_way_until_s = time.monotonic() + _ONE_WAY_S
        if is_large(command):
            return await self._register_request(command, sender, channel, let_go)
        self._begun += 1
        number = self._begun
        self._under_way[number] = None
        try:
            return await self._register_request(command, sender, channel, let_go, number)
        finally:
            self._one_has_ended(number)

    def _one_has_ended(self, number: int) -> None:
        """End a request, and wake the waiters for it. Each waiter is woken once, after its last request has ended."""
        if self._under_way.pop(number, number) is not None:
            return
        oldest = next(iter(self._under_way), self._begun + 1)
        while self._settling and self._settling[0][0] < oldest:
            _wake(self._settling.popleft()[1])

    async def _register_request(
        self, command: RemotingCommand, sender: Sender, channel: Channel, let_go: Callable[[], None], number: int = 0
    ) -> Registered | None:
        body = command.body
        self._metrics.registration_bytes.observe(len(body))
        large = is_large(command)
        digest = (await self._gateway.offload(hashlib.sha256, body) if large else hashlib.sha256(body)).digest()
        request = command.version, command.ext_fields, digest
        del body
        delete_absent = self._gateway.settings.delete_topic_with_broker_registration
        repeat = None if delete_absent else self._last.find(request, sender.actor, channel)
        tried: Receipt | None = None
        if repeat is not None and changes_nothing(self._gateway.live_view.view, repeat.event):
            tried = await self._gateway.propose(repeat.event, sender, (repeat.key, repeat.payload))
            if not self._needs_topics(tried):
                return self._answer(repeat.event, tried)
        now_ms = time.time_ns() // 1_000_000
        context = RequestContext(sender.actor, channel, now_ms, delete_absent)
        if not large and becomes_large(command):
            large = True
            self._one_has_ended(number)
        if large:
            found = await self._register_large(command, context, sender, let_go, tried)
            if found is None:
                return None
            event, receipt = found
        else:
            decoded = to_event(command, context)
            if decoded is None:
                return None
            assert isinstance(decoded, RegisterBroker)
            event, receipt = decoded, await self._register(decoded, sender, tried)
        # A DataVersion without timestamp takes the time of receipt, so the same bytes mean another event each time.
        self._last.keep(event, request if event.data_version.timestamp != now_ms else None)
        return self._answer(event, receipt)

    # --- write ---

    async def _register(self, event: RegisterBroker, sender: Sender, tried: Receipt | None = None) -> Receipt:
        """Write a registration, without its topics if these are known.

        Args:
            event: Registration with its topics.
            sender: Sender admitted for this request.
            tried: Receipt of this registration without its topics, if it must be written again with them.
        """
        topicless = self._without_topics(event) if tried is None else None
        if topicless is not None:
            tried = await self._gateway.propose(topicless, sender)
            if not self._needs_topics(tried):
                return tried
        topics = event.topic_config_table or {}
        if len(topics) > _OFF_LOOP_TOPICS:
            payload = await self._gateway.offload(encode, event)
        else:
            payload = self._encoder.encode(event)
        written = await self._write(event, sender, payload, topics)
        # A request waits for the live view once.
        return await self._gateway.result(written, may_wait=tried is None or tried.visible)

    def _needs_topics(self, receipt: Receipt) -> bool:
        """Return whether a registration that was written without its topics must be written again with them.

        If the live view did not have the event in time, its topics may be needed, and the broker's registration is not
        durable without them. In fallback mode that is so for each registration. There the next one brings the topics,
        as soon as the committed view shows that they are missing.
        """
        if receipt.visible:
            return receipt.reason == TOPICS_REQUIRED
        return self._gateway.replica.fallback_reason is None

    async def _write(self, event: RegisterBroker, sender: Sender, payload: bytes, topics: Collection[str]) -> Written:
        """Write a registration with its topics. If it exceeds a quota but changes nothing, write it as a heartbeat.

        So no broker expires because other senders at its address have used up the quota.
        """
        try:
            return await self._gateway.write(event, sender, (routing_key(event), payload), topics)
        except QuotaError:
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._gateway.quotas.count(self._gateway.live_view.view))
            topicless = _topicless(event)
            if not changes_nothing(self._gateway.live_view.view, topicless):
                raise
        return await self._gateway.write(topicless, sender)

    async def _register_large(
        self,
        command: RemotingCommand,
        context: RequestContext,
        sender: Sender,
        let_go: Callable[[], None],
        tried: Receipt | None,
    ) -> tuple[RegisterBroker, Receipt] | None:
        """Do `_register` for a request that the other process reads. Its bytes are released when it is durable.

        Returns:
            The event without its topics, and its receipt. If topics were left out but are needed, they come with the
            next registration.
        """
        address = address_of_peer(context.actor.peer or "")
        try:
            async with self._large_at_a_time.of(address):
                read = await self._read_large(command, context, address)
                if read is None:
                    return None
                event, payload, names = read
                del read
                if tried is not None or self._without_topics(event) is None:
                    written = await self._write(event, sender, payload, names)
                    del payload, names
                else:
                    del payload, names
                    written = await self._gateway.write(event, sender)
            let_go()
            return event, await self._gateway.result(written)
        finally:
            let_go()

    async def _read_large(
        self, command: RemotingCommand, context: RequestContext, address: str
    ) -> ReadRegistration | None:
        """Read a large registration in its address's turn. If it cannot be read, its inflated size is charged."""
        quotas, actor, size = self._gateway.quotas, context.actor, len(command.body)
        quotas.reading(actor, size)
        cost, loop = 0, asyncio.get_running_loop()
        try:
            async with self._reading.of(address):
                try:
                    return await loop.run_in_executor(self._reader, self._large.read, command, context)
                except RefusedError:
                    if read_bool(command, "compressed"):
                        limit = context.inflated_limit_bytes
                        cost = await loop.run_in_executor(self._reader, inflated_bytes, command.body, limit)
                    raise
        finally:
            quotas.reading_has_ended(actor, cost - size)

    def _without_topics(self, event: RegisterBroker) -> RegisterBroker | None:
        """Return the event without its topics if it may be written so. None if the topics are needed."""
        if not self._last.has_same_topics(event):
            return None
        topicless = _topicless(event)
        return topicless if changes_nothing(self._gateway.live_view.view, topicless) else None

    def _answer(self, event: RegisterBroker, receipt: Receipt) -> Registered:
        self._counter(event.actor.via, receipt.verdict).inc()
        view = self._gateway.live_view.view
        master = view.registration_result(event.cluster_name, event.broker_name, event.broker_id)
        wants_order = self._gateway.settings.return_order_topic_config_to_broker
        return Registered(event, receipt, master, view.kv_table(ORDER_TOPIC_CONFIG) if wants_order else None)


class Encoded(NamedTuple):
    """Event of a request, and its routing key and payload on the event log."""

    event: RegisterBroker
    key: str
    payload: bytes


class _Last(NamedTuple):
    """Last registration of a broker here. ``request`` and ``repeat`` are None if they are too large to keep."""

    digest: str
    request: Request | None = None
    repeat: Encoded | None = None


class RegistrationCache:
    """Cache of the registrations of one gateway's brokers. Used on its event loop."""

    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._last: BoundedCache[_Broker, _Last] = BoundedCache(_REGISTRATIONS_BYTES)

    def has_same_topics(self, event: RegisterBroker) -> bool:
        """Return whether the broker's last registration had the same topics."""
        last = self._last.get(_broker(event))
        return last is not None and last.digest == event.topic_config_digest

    def find(self, request: Request, actor: Actor, channel: Channel) -> Encoded | None:
        """Return the meaning of a request, if its broker's last one was the same, over any connection."""
        fields = request[1] or {}
        last = self._last.get((fields.get("clusterName"), fields.get("brokerName"), fields.get("brokerAddr")))
        if last is None or last.repeat is None or last.request != request:
            return None
        event = last.repeat.event
        if event.channel == channel and event.actor == actor:
            return last.repeat
        return self.keep(msgspec.structs.replace(event, actor=actor, channel=channel), request)

    def keep(self, event: RegisterBroker, request: Request | None = None) -> Encoded | None:
        """Remember a registration as its broker's last one.

        Args:
            event: The registration, with or without its topics.
            request: Request that means this event each time it comes. None: there is no such request.
        """
        broker, digest = _broker(event), event.topic_config_digest
        last, repeat, kept = _Last(digest), None, None
        if request is None and self.has_same_topics(event):
            return None
        if request is not None:
            event = msgspec.structs.replace(event, topic_config_table=None)
            repeat = Encoded(event, routing_key(event), self._encoder.encode(event))
            kept = kept_bytes(request[1], repeat.payload)
            if kept is not None:
                last = _Last(digest, request, repeat)
        self._last.put(broker, last, _size(broker, digest) + (kept or 0))
        return repeat


def _broker(event: RegisterBroker) -> _Broker:
    return event.cluster_name, event.broker_name, event.broker_addr


def _size(broker: _Broker, digest: str) -> int:
    return sum(map(getsizeof, broker)) + len(digest)


def kept_bytes(fields: dict[str, str] | None, payload: bytes) -> int | None:
    """Return the memory for a cached request and its event, in bytes. None if that is too much.

    The real size counts, because fields may be long, and a small payload may be a large event.

    Args:
        fields: Fields of the request's header.
        payload: Event in the form of the event log.
    """
    said = sum(getsizeof(name) + getsizeof(text) for name, text in (fields or {}).items())
    said += zstandard.frame_content_size(payload[1:])
    return _OBJECTS_BYTES + len(payload) + 2 * said if said <= _LARGEST_BYTES else None


def _topicless(event: RegisterBroker) -> RegisterBroker:
    return msgspec.structs.replace(event, topic_config_table=None)


async def _wait(future: asyncio.Future[None], timeout_s: float) -> None:
    """Wait until the future is done or the time is over. A timer costs the same for any number of waiters."""
    timer = asyncio.get_running_loop().call_later(timeout_s, _wake, future)
    try:
        await future
    finally:
        timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

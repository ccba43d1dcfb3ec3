# SPDX-License-Identifier: Apache-2.0
"""Requests to NameServers, one after the other, until one answers. It joins `NameServers` and the transports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from clients.addresses import is_http
from clients.route.errors import BadRouteError
from clients.route.http import HttpTransport
from clients.route.rotation import NameServers
from clients.route.settings import RouteSettings
from clients.route.transport import RouteAnswer, RouteTransport, decode_route
from remoting.client import RemotingClient, Sign
from remoting.codec.frame import RemotingCommand
from remoting.errors import AnswerError, AnswerTimeoutError, ClientError
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import UnavailableError

log = structlog.get_logger("routelake.route")

_GET_MAX_OFFSET: Final = 30
_LEAVE_ALONE: Final = frozenset({ResponseCode.GO_AWAY, ResponseCode.SYSTEM_BUSY})
"""Response codes after which a NameServer is skipped for some time. After other errors it stays chosen."""

_AT_A_TIME: Final = 16
"""Maximum number of concurrent requests without long polls. Further requests wait."""


class RemotingTransport:
    """A `RouteTransport` over remoting: GET_ROUTEINFO_BY_TOPIC (105).

    It always gets the whole route, because remoting has neither tags nor long polls.

    Source (5.5.0): MQClientAPIImpl.getTopicRouteInfoFromNameServer.
    """

    can_wait = False

    def __init__(self, client: RemotingClient | None = None, sign: Sign | None = None) -> None:
        """Create a transport, with its own client unless one is given.

        Args:
            client: Remoting client without signatures of its own.
            sign: Function that signs requests to NameServers. Requests to brokers get no signature.
        """
        self._client = client or RemotingClient()
        self._sign = sign

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """See `RouteTransport`."""
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        try:
            signed = request if self._sign is None else self._sign(request)
            answer = await self._client.ask(address, signed, timeout_s)
        except AnswerTimeoutError:
            await self._client.drop(address)  # as in RocketMQ, because a connection without answers is of no use
            raise
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return RouteAnswer(None)
        if answer.code != ResponseCode.SUCCESS:
            raise AnswerError(address, answer)
        if not answer.body:
            raise BadRouteError(address, f"said that there is a route of {topic}, and sent none")
        return RouteAnswer(decode_route(address, answer.body))

    async def drop(self, address: str) -> None:
        """See `RouteTransport`."""
        await self._client.drop(address)

    async def close(self) -> None:
        """See `RouteTransport`."""
        await self._client.close()

    async def detect(self, broker_addr: str, topic: str, timeout_s: float) -> bool:
        """Return True if a broker answers a request for a queue's greatest offset (ServiceDetector.detect).

        A refusal for a missing signature is an answer too.
        """
        request = RemotingCommand(_GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        try:
            await self._client.call(broker_addr, request, timeout_s)
        except ClientError as error:
            return isinstance(error, AnswerError) and error.code == ResponseCode.NO_PERMISSION
        return True


class NoneReadyError(Exception):
    """Every NameServer is skipped at present."""


class RouteFetcher:
    """Routes from a list of NameServers.

    Attributes:
        remoting: Transport for remoting addresses and for brokers.
    """

    def __init__(
        self, addresses: Sequence[str], settings: RouteSettings, choice: random.Random, now_s: Callable[[], float]
    ) -> None:
        """Create a fetcher without connections.

        Args:
            addresses: NameServers from `namesrv_addresses`.
            settings: Settings with time limits, back-off and token.
            choice: Source of randomness for the order of the list and the back-off.
            now_s: Monotonic clock, in seconds.
        """
        keys = settings.credentials
        tls = None if settings.tls is None else settings.tls.context()
        self.remoting = RemotingTransport(RemotingClient(tls=tls), None if keys is None else keys.sign)
        self._http = HttpTransport(settings.http_token, tls)
        self._servers = NameServers(addresses, choice, settings.back_off, preferred=is_http)
        self._timeout_s = settings.mq_client_api_timeout_s
        self._now_s = now_s
        self._closed = False
        self._turn = asyncio.Semaphore(_AT_A_TIME)

    @property
    def chosen(self) -> str | None:
        """The NameServer that answered last."""
        return self._servers.chosen

    @property
    def addresses(self) -> list[str]:
        """All NameServers, in the order in which they are asked."""
        return list(self._servers.addresses)

    @property
    def can_wait(self) -> bool:
        """Return True if the next NameServer supports long polls."""
        ready = self._servers.candidates(self._now_s())
        return self._transport(ready[0]).can_wait

    @property
    def next_ready_s(self) -> float:
        """Return the time until a NameServer may be asked again, in seconds."""
        return self._servers.next_ready_s(self._now_s())

    async def update(self, addresses: Sequence[str]) -> None:
        """Use another list of NameServers. Connections to removed NameServers are closed."""
        for address in self._servers.update(addresses):
            await self._transport(address).drop(address)

    async def fetch(
        self, topic: str, *, tag: str | None = None, wait_s: float = 0.0, only_ready: bool = False
    ) -> RouteAnswer | None:
        """Return a topic's route from the first NameServer that answers.

        Args:
            topic: Topic with its namespace.
            tag: See `RouteTransport.fetch`.
            wait_s: See `RouteTransport.fetch`. Only the first request waits.
            only_ready: Whether to ask only NameServers that are not skipped at present.

        Raises:
            ClientError: No NameServer answered. This is the last error.
            UnavailableError: The fetcher is closed.
            NoneReadyError: No NameServer was asked, because all are skipped.
        """
        if tag is not None and wait_s > 0:
            return await self._fetch(topic, tag, wait_s, only_ready=only_ready)
        async with self._turn:
            return await self._fetch(topic, tag, 0.0, only_ready=only_ready)

    async def _fetch(self, topic: str, tag: str | None, wait_s: float, *, only_ready: bool) -> RouteAnswer | None:
        failure: ClientError | None = None
        for address in self._servers.candidates(self._now_s(), only_ready=only_ready):
            if self._closed:
                raise UnavailableError("the route client is closed")
            if failure is not None:
                log.warning("NameServer failed; trying the next one", address=address, error=str(failure))
            transport = self._transport(address)
            try:
                answer = await transport.fetch(
                    address, topic, timeout_s=self._timeout_s, tag=tag, wait_s=0.0 if failure else wait_s
                )
            except AnswerError as error:
                failure = error
                if error.code in _LEAVE_ALONE:
                    self._servers.failed(address, self._now_s())
                else:
                    self._servers.answered(address)
            except ClientError as error:
                failure = error
                self._servers.failed(address, self._now_s())
            else:
                self._servers.answered(address)
                return answer
        if failure is None:
            raise NoneReadyError
        raise failure

    async def close(self) -> None:
        """Close every connection. The fetcher cannot be used afterwards."""
        self._closed = True
        await self.remoting.close()
        await self._http.close()

    def _transport(self, address: str) -> RouteTransport:
        return self._http if is_http(address) else self.remoting

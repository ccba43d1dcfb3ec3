# SPDX-License-Identifier: Apache-2.0
"""Routes over remoting, from any NameServer: GET_ROUTEINFO_BY_TOPIC (105).

Source (5.5.0): MQClientAPIImpl.getTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

from typing import Final

from clients.route.errors import BadRouteError
from clients.route.transport import RouteAnswer, decode_route
from remoting.client import RemotingClient, Sign
from remoting.codec.frame import RemotingCommand
from remoting.errors import AnswerError, AnswerTimeoutError, ClientError
from schemas.codes import RequestCode, ResponseCode

_GET_MAX_OFFSET: Final = 30


class RemotingTransport:
    """A `RouteTransport`. It always gets the whole route: remoting knows neither tags nor waiting."""

    can_wait = False

    def __init__(self, client: RemotingClient | None = None, sign: Sign | None = None) -> None:
        """With a client of its own unless one is given.

        Args:
            client: Signs nothing itself.
            sign: Signs what NameServers are asked. Brokers hear no signature of the NameServers' accounts.
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
            await self._client.drop(address)  # as RocketMQ does: a connection on which nothing comes is no good
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
        """Whether a broker answers a request for a queue's greatest offset (ServiceDetector.detect).

        A broker that asks for a signature answers, too: it refuses.
        """
        request = RemotingCommand(_GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        try:
            await self._client.call(broker_addr, request, timeout_s)
        except ClientError as error:
            return isinstance(error, AnswerError) and error.code == ResponseCode.NO_PERMISSION
        return True

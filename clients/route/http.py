# SPDX-License-Identifier: Apache-2.0
"""Transport of route requests over routelake's HTTP API (docs/reference/http-api.md).

With an ETag, a known route is not sent again. With a long poll, the answer comes when the route changes.
"""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx

from clients.http_errors import answer_error, client_error, problem_of
from clients.route.errors import BadRouteError
from clients.route.transport import RouteAnswer, decode_route
from remoting.errors import AnswerTimeoutError, ConnectionLostError

MAX_WAIT_S: Final = 300.0
"""Maximum ``wait`` that a gateway accepts, in seconds."""
_TOPIC_NOT_EXIST: Final = "urn:routelake:problem:topic-not-exist"


class HttpTransport:
    """A `RouteTransport` over HTTP."""

    can_wait = True

    def __init__(self, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Create a transport without connections. The caller limits the number of concurrent requests.

        Args:
            token: Bearer token, for a routelake that protects its reads.
            tls: TLS context for https. None: the authorities of the system, or of SSL_CERT_FILE, are trusted.
        """
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._tls = tls
        self._peers: dict[tuple[str, bool], _Peer] = {}

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """See `RouteTransport`."""
        waits = tag is not None and wait_s > 0
        patience_s = timeout_s + (wait_s if waits else 0.0)
        peer = self._peer(address, waits=waits)
        try:
            request = peer.client.build_request(
                "GET",
                f"{address}/v1/topics/{quote(topic, safe='')}/route",
                params={"wait": f"{min(wait_s, MAX_WAIT_S):g}"} if waits else {},
                headers={} if tag is None else {"if-none-match": tag},
                timeout=httpx.Timeout(None, connect=timeout_s),
            )
            answer = await peer.send(request, patience_s)
        except TimeoutError:
            if peer.closed:
                raise ConnectionLostError(address, "the connection was closed") from None
            raise AnswerTimeoutError(address, f"no answer within {patience_s:g} s") from None
        except httpx.DecodingError as error:
            raise BadRouteError(address, f"the answer cannot be decompressed: {error}") from error
        except httpx.RequestError as error:
            raise client_error(address, error, timeout_s) from error
        return _understand(address, answer)

    async def drop(self, address: str) -> None:
        """See `RouteTransport`."""
        for key in [key for key in self._peers if key[0] == address]:
            await self._peers.pop(key).close()

    async def close(self) -> None:
        """See `RouteTransport`."""
        for address, _ in list(self._peers):
            await self.drop(address)

    def _peer(self, address: str, *, waits: bool) -> _Peer:
        # Long polls have a separate client, because httpx searches all connections of a client at every request.
        peer = self._peers.get((address, waits))
        if peer is None:
            # As with remoting, connect directly: a proxy for the web does not reach NameServers.
            is_tls = address.startswith("https:")
            verify: Any = (self._tls or ssl.create_default_context()) if is_tls else False
            client = httpx.AsyncClient(
                headers=self._headers,
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
                verify=verify,
            )
            peer = self._peers[address, waits] = _Peer(client)
        return peer


class _Peer:
    """The connections to one address, and the running requests on them.

    Attributes:
        client: HTTP client for the requests.
        closed: Whether `close` was called. Running requests then end with a TimeoutError.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.closed = False
        self._asking: set[asyncio.Timeout] = set()
        self._all_ended = asyncio.Event()

    async def send(self, request: httpx.Request, patience_s: float) -> httpx.Response:
        """Send a request, and return the answer.

        Raises:
            TimeoutError: The request takes too long, or `close` was called.
            httpx.RequestError: The request failed.
        """
        async with asyncio.timeout(patience_s) as limit:
            self._asking.add(limit)
            try:
                return await self.client.send(request)
            finally:
                self._asking.discard(limit)
                if not self._asking:
                    self._all_ended.set()

    async def close(self) -> None:
        """End every request, then close. Otherwise httpx would leave a connection open that is still being set up."""
        self.closed = True
        for limit in self._asking:
            if not limit.expired():
                limit.reschedule(0.0)
        while self._asking:
            self._all_ended.clear()
            await self._all_ended.wait()
        await self.client.aclose()


def _understand(address: str, answer: httpx.Response) -> RouteAnswer | None:
    tag = answer.headers.get("etag")
    if answer.status_code == HTTPStatus.OK:
        return RouteAnswer(decode_route(address, answer.content), tag)
    if answer.status_code == HTTPStatus.NOT_MODIFIED:
        return None
    problem = problem_of(answer)
    if answer.status_code == HTTPStatus.NOT_FOUND and problem.type == _TOPIC_NOT_EXIST:
        return RouteAnswer(None, tag)
    raise answer_error(address, answer, problem)

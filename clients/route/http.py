# SPDX-License-Identifier: Apache-2.0
"""Routes over HTTP, from routelake (docs/reference/http-api.md).

With an ETag, what is known already is not sent again; with a long poll, the answer comes when the route is another one.
"""

from __future__ import annotations

import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import httpx

from clients.http import HttpConnections, problem_of, refusal
from clients.route.errors import BadRouteError
from clients.route.transport import RouteAnswer, decode_route

MAX_WAIT_S: Final = 300.0
"""A gateway refuses a longer ``wait``."""
_TOPIC_NOT_EXIST: Final = "urn:routelake:problem:topic-not-exist"


class HttpTransport:
    """A `RouteTransport`."""

    can_wait = True

    def __init__(self, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Connects to nobody yet. How many requests are under way at a time is the caller's matter.

        Args:
            token: Bearer token, for a routelake that protects its reads.
            tls: For https; None: who the system trusts is believed, or SSL_CERT_FILE.
        """
        self._token = token
        self._tls = tls
        self._peers: dict[tuple[str, bool], HttpConnections] = {}

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """See `RouteTransport`."""
        waits = tag is not None and wait_s > 0
        try:
            answer = await self._peer(address, waits=waits).send(
                "GET",
                f"/v1/topics/{quote(topic, safe='')}/route",
                timeout_s,
                wait_s=wait_s if waits else 0.0,
                params={"wait": f"{min(wait_s, MAX_WAIT_S):g}"} if waits else {},
                headers={} if tag is None else {"if-none-match": tag},
            )
        except httpx.DecodingError as error:
            raise BadRouteError(address, f"the answer cannot be decompressed: {error}") from error
        tag = answer.headers.get("etag")
        if answer.status_code == HTTPStatus.OK:
            return RouteAnswer(decode_route(address, answer.content), tag)
        if answer.status_code == HTTPStatus.NOT_MODIFIED:
            return None
        if answer.status_code == HTTPStatus.NOT_FOUND and problem_of(answer).type == _TOPIC_NOT_EXIST:
            return RouteAnswer(None, tag)
        raise refusal(address, answer)

    async def drop(self, address: str) -> None:
        """See `RouteTransport`."""
        for key in [key for key in self._peers if key[0] == address]:
            await self._peers.pop(key).close()

    async def close(self) -> None:
        """See `RouteTransport`."""
        for address, _ in list(self._peers):
            await self.drop(address)

    def _peer(self, address: str, *, waits: bool) -> HttpConnections:
        # Long polls have connections of their own: httpx looks through all of a client's for every request.
        peer = self._peers.get((address, waits))
        if peer is None:
            peer = self._peers[address, waits] = HttpConnections(address, self._token, self._tls)
        return peer

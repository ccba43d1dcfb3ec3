# SPDX-License-Identifier: Apache-2.0
"""Requests over HTTP to one routelake, with the errors of `remoting.errors` (docs/reference/http-api.md)."""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Any, Final, Self

import httpx
import msgspec

from remoting.codec.frame import HTTP_IS_ELSEWHERE, RemotingCommand
from remoting.errors import AnswerError, AnswerTimeoutError, ConnectError, ConnectionLostError, why_not_connected
from schemas.codes import ResponseCode

_BUSY: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)


class Problem(msgspec.Struct):
    """Fields of a problem document that clients use."""

    type: str = ""
    title: str = ""
    detail: str = ""
    code: int | None = None


class HttpConnections:
    """The connections to one address, and the requests that are under way on them."""

    def __init__(self, address: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Connects when it is asked.

        Args:
            address: http://host:port or https://host:port.
            token: Bearer token, if the routelake needs one.
            tls: For https; None: who the system trusts is believed, or SSL_CERT_FILE.
        """
        self._address = address
        verify: Any = (tls or ssl.create_default_context()) if address.startswith("https:") else False
        # As remoting does, straight to the address: a proxy for the web does not lead to NameServers.
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {token}"} if token else {},
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
            verify=verify,
        )
        self._closed = False
        self._asking: set[asyncio.Timeout] = set()
        self._all_ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        """These connections."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """See `close`."""
        await self.close()

    async def send(
        self,
        method: str,
        path: str,
        timeout_s: float,
        *,
        wait_s: float = 0.0,
        **parts: Any,  # noqa: ANN401 (httpx's)
    ) -> httpx.Response:
        """Send a request, and return its answer, whatever its status.

        Args:
            method: GET or POST.
            path: From ``/v1`` on, encoded.
            timeout_s: For connecting and the answer together, on top of ``wait_s``.
            wait_s: Time that the server may take on purpose.
            **parts: Of the request, for httpx: params, headers, content.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
            httpx.DecodingError: The answer cannot be decompressed.
        """
        request = self._client.build_request(
            method, f"{self._address}{path}", timeout=httpx.Timeout(None, connect=timeout_s), **parts
        )
        try:
            return await self._send(request, timeout_s + wait_s)
        except httpx.ConnectTimeout:
            raise ConnectError(self._address, f"no connection within {timeout_s:g} s") from None
        except httpx.ConnectError as error:
            raise ConnectError(self._address, f"no connection: {why_not_connected(error)}") from error
        except TimeoutError:
            if self._closed:
                raise ConnectionLostError(self._address, "the connection was closed") from None
            raise AnswerTimeoutError(self._address, f"no answer within {timeout_s + wait_s:g} s") from None
        except httpx.DecodingError:
            raise
        except httpx.RequestError as error:
            why = str(error) or type(error).__name__
            raise ConnectionLostError(self._address, f"connection lost: {why}") from error

    async def _send(self, request: httpx.Request, patience_s: float) -> httpx.Response:
        """Raises TimeoutError when it takes too long or `close` comes first, and httpx.RequestError."""
        async with asyncio.timeout(patience_s) as limit:
            self._asking.add(limit)
            try:
                return await self._client.send(request)
            finally:
                self._asking.discard(limit)
                if not self._asking:
                    self._all_ended.set()

    async def close(self) -> None:
        """End every request, then close: httpx forgets a connection that is still being made, and leaves it open."""
        self._closed = True
        for limit in self._asking:
            if not limit.expired():
                limit.reschedule(0.0)
        while self._asking:
            self._all_ended.clear()
            await self._all_ended.wait()
        await self._client.aclose()


def problem_of(answer: httpx.Response) -> Problem:
    """The problem document of an answer; without one, what its status and its body say."""
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (ValueError, RecursionError):
        is_remoting = HTTP_IS_ELSEWHERE.encode() in answer.content
        return Problem(detail=HTTP_IS_ELSEWHERE if is_remoting else answer.reason_phrase)


def refusal(address: str, answer: httpx.Response) -> AnswerError:
    """The error of an answer that refuses a request."""
    problem = problem_of(answer)
    code = problem.code
    if code is None:
        code = ResponseCode.SYSTEM_BUSY if answer.status_code in _BUSY else ResponseCode.SYSTEM_ERROR
    remark = f"HTTP {answer.status_code}: {problem.detail or problem.title or answer.reason_phrase}"
    return AnswerError(address, RemotingCommand(code, remark=remark))

# SPDX-License-Identifier: Apache-2.0
"""Errors of requests over HTTP, as `remoting.errors` has them for requests over remoting."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import httpx
import msgspec

from remoting.codec.frame import HTTP_IS_ELSEWHERE, RemotingCommand
from remoting.errors import AnswerError, ClientError, ConnectError, ConnectionLostError, why_not_connected
from schemas.codes import ResponseCode

_BUSY: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)


class Problem(msgspec.Struct):
    """Fields of a problem document that a client uses."""

    type: str = ""
    title: str = ""
    detail: str = ""
    code: int | None = None


def problem_of(answer: httpx.Response) -> Problem:
    """Return the problem document of an answer. Without one, its detail is the reason of the status."""
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (ValueError, RecursionError):
        is_remoting = HTTP_IS_ELSEWHERE.encode() in answer.content
        return Problem(detail=HTTP_IS_ELSEWHERE if is_remoting else answer.reason_phrase)


def answer_error(address: str, answer: httpx.Response, problem: Problem) -> AnswerError:
    """Return the error of an answer that is no success."""
    code = problem.code
    if code is None:
        code = ResponseCode.SYSTEM_BUSY if answer.status_code in _BUSY else ResponseCode.SYSTEM_ERROR
    remark = f"HTTP {answer.status_code}: {problem.detail or problem.title or answer.reason_phrase}"
    return AnswerError(address, RemotingCommand(code, remark=remark))


def client_error(address: str, error: httpx.RequestError, timeout_s: float) -> ClientError:
    """Return the error of a request without an answer.

    Args:
        address: URL of the server.
        error: The error of httpx.
        timeout_s: Time limit of the connect, in seconds.
    """
    if isinstance(error, httpx.ConnectTimeout):
        return ConnectError(address, f"no connection within {timeout_s:g} s")
    if isinstance(error, httpx.ConnectError):
        return ConnectError(address, f"no connection: {why_not_connected(error)}")
    return ConnectionLostError(address, f"connection lost: {str(error) or type(error).__name__}")

# SPDX-License-Identifier: Apache-2.0
"""Errors of requests over HTTP, as `remoting.errors` has them for requests over remoting."""

from __future__ import annotations

import httpx

from remoting.errors import ClientError, ConnectError, ConnectionLostError, why_not_connected


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

# SPDX-License-Identifier: Apache-2.0
"""Errors of requests that this side sends.

RoutelakeError
├── NothingDoneError         answered, but there was nothing to change
└── ClientError
    ├── ConnectError         no connection; nothing was sent
    ├── AnswerTimeoutError   sent, but not answered in time: the request may have taken effect
    ├── ConnectionLostError  sent, then the connection closed: the request may have taken effect
    └── AnswerError          answered with an error code
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl

from remoting.codec.frame import RemotingCommand
from schemas.errors import RoutelakeError


class NothingDoneError(RoutelakeError):
    """A peer answered OK to a change, and reported that there was nothing to change."""


class ClientError(RoutelakeError):
    """A request to a peer failed. ``address`` is the address of the peer, and ``reason`` the reason."""

    def __init__(self, address: str, message: str, /, **fields: object) -> None:
        self.address = address
        self.reason = message
        super().__init__(f"{address}: {message}", address=address, **fields)


class ConnectError(ClientError):
    """No connection could be opened. Nothing was sent (RemotingConnectException)."""


class AnswerTimeoutError(ClientError):
    """No answer came in time. It is unknown whether the request took effect (RemotingTimeoutException)."""


class ConnectionLostError(ClientError):
    """The connection closed before the answer came. It is unknown whether the request took effect."""


class AnswerError(ClientError):
    """The answer's code is not SUCCESS (MQClientException, MQBrokerException).

    Attributes:
        code: The response code.
        remark: Remark of the answer.
    """

    def __init__(self, address: str, answer: RemotingCommand) -> None:
        """See the attributes."""
        self.code = answer.code
        self.remark = answer.remark
        super().__init__(address, f"CODE: {answer.code}  DESC: {answer.remark or ''}".rstrip(), code=answer.code)


_ERRNO = re.compile(r"\[Errno (\d+)\]")
"""Error number as OSError prints it. If a name has several addresses, asyncio before 3.12 and uvloop raise one OSError
without errno and cause. It has only the texts of all errors ("Multiple exceptions: ...")."""


def why_not_connected(error: BaseException) -> str:
    """Return the reason why no connection could be opened, in the system's words.

    The texts of libraries contain Python tuples, or no reason.
    """
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    if isinstance(error, ssl.SSLError):
        return f"TLS: {why_not_tls(error)}"
    reasons = dict.fromkeys(os.strerror(int(number)) for number in _ERRNO.findall(str(error)))
    if reasons:
        return ", ".join(reasons)
    cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    return str(error) if cause is None else why_not_connected(cause)


def why_not_listening(error: OSError) -> str:
    """The reason why an address cannot be listened on, and the remedy, without the last full stop."""
    remedies = {
        errno.EADDRINUSE: "another process listens there. Stop it (`ss -ltnp` names it), or choose another port",
        errno.EACCES: "ports below 1024 need privileges. Choose a higher one",
        errno.EADDRNOTAVAIL: "this machine does not have that address. Choose one that it has, or 0.0.0.0 for all",
    }
    return remedies.get(error.errno or 0, f"{error.strerror or error}. Choose another address")


def why_not_tls(error: Exception) -> str:
    """OpenSSL's reason in small letters, without its source location."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate was not accepted: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or str(error)).lower().replace("_", " ")

# SPDX-License-Identifier: Apache-2.0
"""Errors of requests that this side sends.

RoutelakeError
├── NothingDoneError         answered, but there was nothing to do
└── ClientError
    ├── ConnectError         no connection; nothing was sent
    ├── AnswerTimeoutError   sent, but not answered in time: it may have happened
    ├── ConnectionLostError  sent, then the connection closed: it may have happened
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
    """A peer said OK to a change, and also that there was nothing to change."""


class ClientError(RoutelakeError):
    """A request to a peer did not succeed. ``address`` says which peer, ``reason`` why."""

    def __init__(self, address: str, message: str, /, **fields: object) -> None:
        self.address = address
        self.reason = message
        super().__init__(f"{address}: {message}", address=address, **fields)


class ConnectError(ClientError):
    """No connection could be made; nothing was sent (RemotingConnectException)."""


class AnswerTimeoutError(ClientError):
    """No answer in time; whether the request took effect is not known (RemotingTimeoutException)."""


class ConnectionLostError(ClientError):
    """The connection closed before the answer came; whether the request took effect is not known."""


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
"""Number as OSError prints it. A name with several addresses fails as one OSError that has no errno and no cause, only
the texts of all of them ("Multiple exceptions: ..."): asyncio before 3.12 and uvloop keep nothing else."""


def why_not_connected(error: BaseException) -> str:
    """Return why no connection could be made, in the system's words.

    The texts of libraries hold Python's tuples, or say nothing.
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
    """The reason for which an address cannot be listened on, and what to do; without the full stop."""
    remedies = {
        errno.EADDRINUSE: "another process listens there. Stop it (`ss -ltnp` names it), or choose another port",
        errno.EACCES: "ports below 1024 need privileges. Choose a higher one",
        errno.EADDRNOTAVAIL: "this machine does not have that address. Choose one that it has, or 0.0.0.0 for all",
    }
    return remedies.get(error.errno or 0, f"{error.strerror or error}. Choose another address")


def why_not_tls(error: Exception) -> str:
    """OpenSSL's reason in small letters, without where in its sources it was."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate was not accepted: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or str(error)).lower().replace("_", " ")

# SPDX-License-Identifier: Apache-2.0
"""Requests whose answers are ready: recognised by their header, mostly without decoding it, and answered at once."""

from __future__ import annotations

from typing import Protocol

from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import Reply


class CachedRequest(Protocol):
    """What all requests have in common that differ in their opaque alone.

    Attributes:
        reply: The reply of the moment, if it is known already.
    """

    @property
    def reply(self) -> Reply | None: ...  # noqa: D102

    def answer(self) -> Reply:
        """The reply of the moment; what this raises becomes one."""


Recognised = tuple[CachedRequest, bytes]
"""What a request asks, and the digits of its opaque."""


class RequestCache(Protocol):
    """What a server gives to its connections. Called on its event loop; waits for nothing."""

    @property
    def code(self) -> int:
        """The one request code that it recognises."""

    def find(self, serialize_type: int, header: bytes) -> Recognised | None:
        """Recognise a header that has no body behind it; None: it has to be decoded."""

    def learn(self, header: bytes, command: RemotingCommand) -> Recognised | None:
        """The same of a request that was decoded from this header; None: it is for `Handler.handle`."""

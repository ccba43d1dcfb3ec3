# SPDX-License-Identifier: Apache-2.0
"""Record of the requests that reached an application, in order, each with its whole body."""

from __future__ import annotations

from typing import Any

from starlette.types import Message, Receive, Scope, Send

from api.http.app import HttpApp
from api.http.csrf import Client
from api.http.fast_path import FastRoutes
from api.http.heads import Headers
from dev.support.proxies import MARK
from dev.support.strict_http import Asked


class ExecutedRoutes(FastRoutes):
    """The fast path, which executes requests, too."""

    front: Executed

    def answer(
        self, client: Client, target: bytes, headers: Headers, defaults: Headers, has_certificate: bool
    ) -> tuple[bytes, ...] | None:
        found = super().answer(client, target, headers, defaults, has_certificate)
        if found is not None:
            self.front.note(self.front.whole, Asked(b"GET", target, b""), headers)
        return found


class Executed:
    """Recorder in front of an application, for `serve_http` and for uvicorn.

    Attributes:
        whole: Requests with complete bodies.
        broken: Requests with incomplete bodies.
        unproxied: Requests without the mark of a proxy (`dev.support.proxies.MARK`).
        waiting: Number of requests that wait for more of their bodies.
    """

    def __init__(self, app: HttpApp, *, reads_bodies: bool = True) -> None:
        """Nothing yet.

        Args:
            app: Gets the requests.
            reads_bodies: False: it is the application's to read them, which often answers before.
        """
        self._reads_bodies = reads_bodies
        self.app, self.context, self.events, context = app, app.context, app.context.events, app.context
        self.whole: list[Asked] = []
        self.broken: list[Asked] = []
        self.unproxied: list[Asked] = []
        self.waiting = 0
        self.fast_routes = ExecutedRoutes(
            context.gateway, context.answers[context.gateway.settings.reads], context.metrics, app.sites, context.guard
        )
        self.fast_routes.front = self

    def forget(self) -> None:
        """Forget all requests."""
        self.whole.clear()
        self.broken.clear()
        self.unproxied.clear()

    def note(self, where: list[Asked], asked: Asked, headers: Headers) -> None:
        """Keep a request."""
        where.append(asked)
        if all(name != MARK for name, _ in headers):
            self.unproxied.append(asked)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body, then let the application have it."""
        body = bytearray()
        query: bytes = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        if not self._reads_bodies:
            self.note(self.whole, Asked(scope["method"].encode(), target, b""), scope["headers"])
            await self.app(scope, receive, send)
            return
        while True:
            self.waiting += 1
            message = await receive()
            self.waiting -= 1
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        asked = Asked(scope["method"].encode(), target, bytes(body))
        is_broken = message["type"] == "http.disconnect"
        self.note(self.broken if is_broken else self.whole, asked, scope["headers"])
        parts: list[Message] = [message if is_broken else {"type": "http.request", "body": bytes(body)}]

        async def read() -> Message:
            return parts.pop() if parts else await receive()

        await self.app(scope, read, send)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

# SPDX-License-Identifier: Apache-2.0
"""Encoded route answers with their fingerprints, and the short way to them.

`RouteLane` answers the one request that matters for speed, ``GET /v1/topics/{topic}/route`` without parameters, from a
dict: raw path to the ASGI messages of its answer, made once per view. It knows nothing of FastAPI and decides nothing
that the long way (`api.http.routes_topics`) would decide otherwise; whatever is not plain goes there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Scope

from api.gateway import Gateway
from api.http.etag import JSON, Position, matches, read_headers
from api.metrics import Metrics
from api.view.answers import RouteAnswers
from api.view.snapshot import RouteView

_MAX_READY_BYTES: Final = 64 * 1024 * 1024
_READY_BYTES: Final = 2500
"""What a `Ready` costs beside its path and body, roughly."""
_HEAD: Final = b"/v1/topics/"
_TAIL: Final = b"/route"


class EncodedRoute(NamedTuple):
    """A body and its fingerprint."""

    body: bytes
    print: str


class EncodedRoutes:
    """`RouteAnswers` with fingerprints."""

    def __init__(self, answers: RouteAnswers) -> None:
        self._answers = answers

    def get(self, view: RouteView, topic: str) -> EncodedRoute | None:
        """The answer; None means TOPIC_NOT_EXIST."""
        answer = self._answers.route(view, topic)
        return None if answer is None else EncodedRoute(answer.body, answer.digest)


class Ready(NamedTuple):
    """The answer of a path, in one view: as ASGI messages, and as what the socket gets.

    Attributes:
        print: Fingerprint of the body.
        found: 200.
        not_modified: 304.
        lines: Of the 200, from after the default headers to the empty line.
        not_modified_lines: Likewise of the 304.
        body: Of the 200.
    """

    print: str
    found: tuple[Message, Message]
    not_modified: tuple[Message, Message]
    lines: bytes
    not_modified_lines: bytes
    body: bytes


class RouteLane:
    """The short way. One thread: the event loop's."""

    def __init__(self, gateway: Gateway, routes: EncodedRoutes, metrics: Metrics) -> None:
        """Start empty."""
        self._gateway = gateway
        self._routes = routes
        self._count = metrics.requests.labels("http", "getTopicRoute", "0").inc
        self._observe = metrics.route_latency.observe
        self._ready: OrderedDict[bytes, Ready] = OrderedDict()
        self._ready_bytes = 0
        self._shown = (0, -1)

    def find(self, scope: Scope) -> tuple[Message, Message] | None:
        """The messages that answer a request, or None where the long way must be taken."""
        if scope["method"] != "GET" or scope["query_string"]:
            return None
        path = scope.get("raw_path")
        ready = None if path is None else self.ready(path)
        if ready is None:
            return None
        known = if_none_match(scope["headers"])
        return ready.found if known is None or not matches(known, ready.print) else ready.not_modified

    def ready(self, path: bytes) -> Ready | None:
        """The answer to a plain GET of a path, as of now; None where the long way must be taken."""
        gateway = self._gateway
        view = gateway.view
        shown = (view.serial, gateway.folded_offset)
        if shown != self._shown:
            self._ready = OrderedDict()
            self._ready_bytes = 0
            self._shown = shown
        return self._ready.get(path) or self._prepare(view, path)

    def answered(self, seconds: float) -> None:
        """Count an answer."""
        self._count()
        self._observe(seconds)

    def _prepare(self, view: RouteView, path: bytes) -> Ready | None:
        if not path.startswith(_HEAD) or not path.endswith(_TAIL):
            return None
        topic = path[len(_HEAD) : -len(_TAIL)]
        if not topic or b"/" in topic:
            return None
        try:
            route = self._routes.get(view, unquote_to_bytes(topic).decode())
        except UnicodeDecodeError:
            return None
        if route is None:
            return None
        headers = read_headers(Position(*self._place(view)), route.print)
        common = [(name.encode(), value.encode()) for name, value in headers.items()]
        typed = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(route.body)), *common]
        ready = Ready(
            print=route.print,
            found=(_start(200, typed), _body(route.body)),
            not_modified=(_start(304, common), _body(b"")),
            lines=header_lines(typed) + b"\r\n",
            not_modified_lines=header_lines(common) + b"\r\n",
            body=route.body,
        )
        self._ready[path] = ready
        self._ready_bytes += _size(path, ready)
        while self._ready_bytes > _MAX_READY_BYTES:
            self._ready_bytes -= _size(*self._ready.popitem(last=False))
        return ready

    def _place(self, view: RouteView) -> tuple[int, int]:
        return view.epoch, self._shown[1]


def _size(path: bytes, ready: Ready) -> int:
    return _READY_BYTES + len(path) + len(ready.body)


def if_none_match(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The header of a request, its lines joined; None without one."""
    found = [value.decode("latin-1") for name, value in headers if name == b"if-none-match"]
    return ", ".join(found) if found else None


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they go over the wire."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _body(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body}

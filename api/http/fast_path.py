# SPDX-License-Identifier: Apache-2.0
"""The fast path: a plain read of a current route is answered from the parser's callback, without ASGI.

A plain read is ``GET /v1/topics/{topic}/route`` over HTTP/1.1, on a connection that stays open, with no query and no
body, by a sender that `Authenticator.passes_fast` accepts. Everything else is left to the application, also a topic
that does not exist. The application answers a plain read with the same bytes (`routes_topics.get_topic_route`).
`FastRoutes` does no I/O: `GuardedProtocol` passes it the head of a request and writes what it returns.

Nothing of a request is kept. `RouteAnswers` keeps each answer's body and digest. The header lines that are the same for
every topic are formatted once for each position of the log and each second of the date.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api.gateway.gateway import Gateway
from api.gateway.metrics import Metrics
from api.http.auth import Authenticator
from api.http.csrf import Client, TrustedOrigins
from api.http.etag import JSON, ReadPosition, if_none_match, matches, read_headers
from api.http.heads import Headers, is_host
from nameserver.answers import RouteAnswers

_BEFORE_TOPIC: Final = b"/v1/topics/"
_AFTER_TOPIC: Final = b"/route"
_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})


class FastRoutes:
    """Answers to plain reads of routes. Used on one thread, the event loop's."""

    def __init__(
        self, gateway: Gateway, answers: RouteAnswers, metrics: Metrics, sites: TrustedOrigins, guard: Authenticator
    ) -> None:
        """Answer from a gateway's view.

        Args:
            gateway: Source of the view and its position.
            answers: Encoded bodies.
            metrics: Counters of the answers.
            sites: Check of the Host headers.
            guard: Check of the permission to read. If it does not accept a request at once, the application decides.
        """
        self._shown = gateway.shown
        self._lineage = gateway.lineage
        self._answers = answers
        self._sites = sites
        self._passes = guard.passes_fast if guard.protects_reads else None
        self._counter = metrics.requests.labels("http", "getTopicRoute", "0")
        self._uncounted = 0
        metrics.before_scrape(self._count)
        self._observe = metrics.route_latency.observe
        self._formatted_for: tuple[object, ...] = (None, None, None)
        """View, offset and default headers."""
        self._found = self._not_modified = b""

    def answer(
        self, client: Client, target: bytes, headers: Headers, defaults: Headers, has_certificate: bool
    ) -> tuple[bytes, ...] | None:
        """Return the answer to a GET over HTTP/1.1 in pieces for the socket, or None to leave it to the application.

        Args:
            client: Host and port of the client.
            target: Target of the request, as sent.
            headers: Headers with names in lower case.
            defaults: uvicorn's default headers, such as the date; a new list whenever one of them changes.
            has_certificate: Whether the client has sent a certificate.
        """
        if not target.startswith(_BEFORE_TOPIC) or not target.endswith(_AFTER_TOPIC):
            return None
        if b"?" in target or b"#" in target:
            return None
        host: bytes | None = None
        is_conditional = False
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    return None
                host = value
            elif name == b"if-none-match":
                is_conditional = True
            elif name in _BODY:
                return None
        if host is None or not is_host(host) or not self._sites.allows_read(client, host):
            return None
        if self._passes is not None and not self._passes(client, headers, has_certificate):
            return None
        try:
            topic = target[len(_BEFORE_TOPIC) : -len(_AFTER_TOPIC)].decode("ascii")
            if "%" in topic:
                topic = unquote(topic, errors="strict")
        except UnicodeDecodeError:
            return None
        view, offset = self._shown.view, self._shown.offset
        answer = self._answers.route(view, topic)
        if answer is None:
            return None
        shown_view, shown_offset, shown_defaults = self._formatted_for
        if view is not shown_view or offset != shown_offset or defaults is not shown_defaults:
            self._formatted_for = (view, offset, defaults)
            self._format(ReadPosition(view.epoch, offset, lineage=self._lineage), defaults)
        if is_conditional and matches(if_none_match(headers), answer.digest):
            return (self._not_modified % answer.digest.encode(),)
        return self._found % (len(answer.body), answer.digest.encode()), answer.body

    def answered(self, seconds: float) -> None:
        """Count an answer that was written."""
        self._uncounted += 1
        self._observe(seconds)

    def _count(self) -> None:
        """Add the answers since the last scrape to the Counter, which is too slow to increment for each answer."""
        self._counter.inc(self._uncounted)
        self._uncounted = 0

    def _format(self, position: ReadPosition, defaults: Headers) -> None:
        """Make the heads of both answers, with places for the length and the digest of the body."""
        common = _lines((name.replace(b"%", b"%%"), value.replace(b"%", b"%%")) for name, value in defaults)
        typed = _lines(((b"content-type", JSON.encode()), (b"content-length", b"%d")))
        shown = read_headers(position, "%b").items()
        rest = _lines((name.encode(), value.encode()) for name, value in shown) + b"\r\n"
        self._found = STATUS_LINE[200] + common + typed + rest
        self._not_modified = STATUS_LINE[304] + common + rest


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)

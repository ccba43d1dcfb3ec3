# SPDX-License-Identifier: Apache-2.0
"""Shared objects of the handlers of the HTTP API (`context_of`), and the admission of each request (`Router`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from api.gateway.gateway import Gateway
from api.gateway.live_gateways import Resolver
from api.gateway.metrics import Metrics
from api.gateway.registrations import Registrations
from api.http.auth import Authenticator
from api.http.body import BodyBudget
from api.http.events import EventHub
from api.http.history_pool import HistoryPool
from api.http.sessions import Sessions
from api.http.settings import HttpSettings
from api.http.watch import ViewWatch
from api.settings.gateway import Reads
from lake.history.history import History
from nameserver.answers import RouteAnswers
from nameserver.view.sorted_topics import SortedTopics, TopicCounts
from remoting.server.refusals import Refusals
from security.admission.admission import Sender
from security.tls_rotation import Tls


class HttpContext:
    """Objects shared by all handlers of an application. Used on the gateway's event loop."""

    def __init__(
        self,
        gateway: Gateway,
        history: History,
        *,
        settings: HttpSettings,
        answers: Mapping[Reads, RouteAnswers],
        metrics: Metrics,
        registrations: Registrations,
        tls: Tls | None = None,
    ) -> None:
        """Make the objects for a started gateway.

        Args:
            gateway: Gateway for writes and reads.
            history: History that answers ``as_of``, ``changes`` and ``epochs``.
            settings: Permissions and limits.
            answers: Caches of encoded routes. The remoting listener shares one of them.
            metrics: Metrics shared with the remoting listener. They do not observe a gateway yet.
            registrations: Registrations shared with the remoting listener.
            tls: State of TLS, for /readyz.

        Raises:
            SetupError: A setting is unusable.
        """
        self.gateway, self.settings, self.answers = gateway, settings, answers
        self.metrics, self.registrations, self.tls = metrics, registrations, tls
        self.refusals = Refusals("http", lambda reason: metrics.security.labels(f"http-{reason}").inc())
        self.guard = Authenticator(settings, gateway.settings.gateway_id, gateway.admission)
        self.sessions = Sessions(settings.sessions_dir, tls_in_front=settings.tls_in_front)
        self.resolver, self.sorted_topics, self.topic_counts = Resolver(), SortedTopics(), TopicCounts()
        self.history = HistoryPool(
            history,
            threads=settings.history_threads,
            queue=settings.history_queue,
            on_evicted=self._note("evicted-history"),
        )
        self.events = EventHub(
            self.history,
            lambda: gateway.committed.view.commit.mark,
            settings.max_subscribers,
            self._note("evicted-subscriber"),
        )
        self.watch = ViewWatch(settings.max_long_polls, self._note("evicted-long-poll"))
        self.budget = BodyBudget(settings.max_bodies_bytes, self._note("evicted-body"))

    def _note(self, reason: str) -> Callable[[str], None]:
        """Return a callback that counts and logs the evictions of an address."""
        return lambda address: self.refusals.note(reason, address, "of the address that holds most")

    @property
    def events_not_in_tables(self) -> int:
        """Number of events that the live view has and the tables do not have yet."""
        return max(0, self.gateway.live_view.offset - self.gateway.committed.offset)


_SENDER: Final = "routelake.sender"
"""Key of the ASGI scope: the admitted sender, or None if every client may send the request."""


class Router(APIRouter):
    """Endpoints that admit the sender of a request before FastAPI reads anything else of it."""

    def __init__(
        self, prefix: str = "", *, tags: list[str | Enum] | None = None, include_in_schema: bool = True
    ) -> None:
        """Declare what the endpoints have in common."""
        super().__init__(prefix=prefix, tags=tags, include_in_schema=include_in_schema, route_class=_AdmittingRoute)


class _AdmittingRoute(APIRoute):
    """An endpoint behind admission. As a dependency, admission costs each read about 80 function calls more."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the endpoint. It raises RoutelakeError as `Authenticator.admit`."""
        handle = super().get_route_handler()

        async def admitted(request: Request) -> Response:
            request.scope[_SENDER] = context_of(request).guard.admit(request)
            return await handle(request)

        return admitted


async def _sender(request: Request) -> Sender:
    sender = request.scope[_SENDER]
    assert isinstance(sender, Sender)
    return sender


Writer = Annotated[Sender, Depends(_sender)]
"""Parameter of an endpoint that writes: the admitted sender."""


def context_of(request: Request) -> HttpContext:
    """Return the context of the application that got the request."""
    context = request.app.context
    assert isinstance(context, HttpContext)
    return context

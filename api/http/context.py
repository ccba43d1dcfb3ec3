# SPDX-License-Identifier: Apache-2.0
"""Objects that every handler of the HTTP API needs. `create_app` makes them once, and `context_of` returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

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
from nameserver.answers import RouteAnswers
from nameserver.view.sorted_topics import SortedTopics, TopicCounts
from remoting.server.refusals import Refusals
from security.admission.admission import Sender
from security.tls_rotation import Tls


@dataclass(frozen=True, slots=True)
class HttpContext:
    """Objects shared by all handlers. ``history`` reads earlier commits. ``answers`` has one cache for each view."""

    gateway: Gateway
    registrations: Registrations
    history: HistoryPool
    events: EventHub
    settings: HttpSettings
    guard: Authenticator
    answers: Mapping[Reads, RouteAnswers]
    metrics: Metrics
    watch: ViewWatch
    budget: BodyBudget
    refusals: Refusals
    sessions: Sessions
    tls: Tls | None = None
    resolver: Resolver = field(default_factory=Resolver)
    sorted_topics: SortedTopics = field(default_factory=SortedTopics)
    topic_counts: TopicCounts = field(default_factory=TopicCounts)

    @property
    def events_not_in_tables(self) -> int:
        """Number of events that the live view has and the tables do not have yet."""
        return max(0, self.gateway.live_view.offset - self.gateway.committed.offset)


async def admit(request: Request) -> Sender | None:
    """Admit the sender of a request. FastAPI calls this dependency of every endpoint before it checks parameters.

    Raises:
        RoutelakeError: As `Authenticator.admit`.
    """
    return context_of(request).guard.admit(request)


Writer = Annotated[Sender, Depends(admit)]
"""Parameter of an endpoint that writes: the admitted sender."""


def context_of(request: Request) -> HttpContext:
    """Return the context of the application that got the request."""
    context = request.app.context
    assert isinstance(context, HttpContext)
    return context

# SPDX-License-Identifier: Apache-2.0
"""The HTTP API as an ASGI application: `create_app`.

A plain read of a route is answered before it reaches this module (`api.http.fast_path`). Any other request passes these
steps: a check of its origin (`api.http.csrf`), counting, FastAPI's routing, admission (`api.http.context.Router`), and
its handler. If a step raises an error, one of the error handlers below answers. Each error is a problem details object.

HEAD is a GET without the body of its answer, and OPTIONS is answered for every path. Both are done in this module
alone, so no endpoint mentions them. An answer to OPTIONS grants other sites nothing, because no CORS header is sent.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any, Final

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from api.http import (
    routes_admin,
    routes_brokers,
    routes_console,
    routes_docs,
    routes_health,
    routes_history,
    routes_kv,
    routes_nameserver,
    routes_reports,
    routes_topics,
)
from api.http.bounds import OF_ADDRESS
from api.http.context import HttpContext, Router
from api.http.csrf import PROBES, TrustedOrigins
from api.http.etag import WAITED
from api.http.fast_path import FastRoutes
from api.http.openapi import DESCRIPTION, TAGS, openapi_document, operation_id, operation_of
from api.http.parameters import path_to_match
from api.http.problems import (
    BAD_PARAMETER,
    BUSY,
    CROSS_SITE,
    FORBIDDEN,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    NO_SUCH_ENDPOINT,
    TIMEOUT,
    TOO_LARGE,
    TOO_MANY,
    UNAUTHORIZED,
    UNKNOWN_HOST,
    Kind,
    Problem,
    problem_of,
)
from api.http.validation import parameter_problem
from runtime.version import release
from schemas.errors import RoutelakeError

log = structlog.get_logger("routelake.http")

_ROUTE_OPERATION = "getTopicRoute"
_READS = ("GET", "OPTIONS")
_METHODS = ("GET", "POST", "PUT", "DELETE")
"""Methods that endpoints have."""
_MOST_PARAMETERS: Final = 64
_COUNTED_REFUSALS: Final = frozenset(
    {UNAUTHORIZED, FORBIDDEN, CROSS_SITE, UNKNOWN_HOST, TOO_LARGE, TIMEOUT, BUSY, TOO_MANY}
)


class HttpApp(FastAPI):
    """FastAPI with admission and counting before it. `create_app` sets the attributes."""

    context: HttpContext
    sites: TrustedOrigins
    fast_routes: FastRoutes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began = time.perf_counter()
        path = path_to_match(scope.get("raw_path") or b"")
        if path is not None:
            scope = {**scope, "path": path}
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _head_alone(send)
        status = 0
        is_checked = False

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (refusal := self.sites.refusal(scope)) is not None:
                raise refusal
            self._count_read(scope)
            if scope["method"] == "OPTIONS" and (allowed := self.methods(scope)):
                await Response(None, 204, {"allow": allowed})(scope, receive, counted)
                return
            self.context.sessions.admit(scope)
            self.context.guard.proofs.check(scope)
            is_checked = True
            await self.context.guard.prepare(scope)
            self._check_parameters(scope)
            await super().__call__(scope, receive, counted)
        except RoutelakeError as error:
            await _respond(Request(scope), problem_of(error), error)(scope, receive, counted)
        finally:
            if is_checked:
                self.context.guard.proofs.record(scope, status)
            self._count(scope, status, time.perf_counter() - began)

    def openapi(self) -> dict[str, Any]:
        """Return the API description. It is made once, because that takes milliseconds."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document(self)
        return self.openapi_schema

    @cached_property
    def openapi_json(self) -> bytes:
        """API description for programs."""
        return msgspec.json.encode(self.openapi())

    @cached_property
    def docs_page(self) -> str:
        """API description for people."""
        return routes_docs.page(self.openapi())

    def methods(self, scope: Scope) -> str:
        """Return the methods of a request's path in the form of ``Allow``. Empty if there is no such path."""
        found = [
            method
            for method in _METHODS
            if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in self.routes)
        ]
        if "GET" in found:
            found.insert(1, "HEAD")
        return ", ".join([*found, "OPTIONS"] if found else ())

    def _count_read(self, scope: Scope) -> None:
        """Count a read, but never health, against its sender's quota. A write is counted with its permission.

        Raises:
            QuotaError: There were too many reads.
        """
        if scope.get("client") is not None and scope["method"] in _READS and scope["path"] not in PROBES:
            self.context.guard.count_read(scope)

    def _check_parameters(self, scope: Scope) -> None:
        """Refuse a query with more parameters than any endpoint has, before they are read.

        Raises:
            Problem: 400; 401 if the sender has no permission to read.
        """
        if scope["query_string"].count(b"&") < _MOST_PARAMETERS:
            return
        if scope["path"] not in PROBES:
            self.context.guard.reader(Request(scope))
        raise Problem(BAD_PARAMETER, f"there are more than {_MOST_PARAMETERS} parameters")

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        operation = operation_of(scope)
        problem: Kind | None = scope.get("routelake.problem")
        code = str(int(problem.code)) if problem is not None else "0" if 0 < status < 500 else "1"
        metrics = self.context.metrics
        metrics.requests.labels("http", operation, code).inc()
        if problem is not None and problem in _COUNTED_REFUSALS:
            metrics.security.labels(problem.slug).inc()
        if operation == _ROUTE_OPERATION:
            if problem is not None:
                metrics.route_errors.labels(code).inc()
            elif WAITED not in scope:
                metrics.route_latency.observe(seconds)


ROUTERS: Final[tuple[Router, ...]] = (
    *(routes_brokers.ingest, routes_brokers.router, routes_topics.router, routes_history.router, routes_reports.router),
    *(routes_admin.router, routes_kv.router, routes_health.router, routes_console.router, routes_nameserver.router),
    routes_docs.router,
)
"""Endpoints of the application."""


def create_app(context: HttpContext) -> HttpApp:
    """Make the application. It must be served on its gateway's event loop."""
    gateway, metrics = context.gateway, context.metrics
    counts = context.refusals.counts
    metrics.observe(gateway)
    metrics.before_scrape(lambda: gateway.quotas.refused_connections("http-connections", counts[OF_ADDRESS]))
    for view in (gateway.live_view, gateway.committed):
        view.follow(context.watch.view_moved)
    gateway.committed.follow_epochs(context.events.view_moved)
    app = HttpApp(
        title="routelake",
        version=release(),
        summary="A RocketMQ NameServer on the lakehouse, over HTTP.",
        description=DESCRIPTION,
        openapi_tags=TAGS,
        generate_unique_id_function=operation_id,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False},
        exception_handlers=dict.fromkeys((RoutelakeError, RequestValidationError, HTTPException, Exception), _on_error),
    )
    app.context = context
    app.sites = TrustedOrigins(context.settings)
    answers = context.answers[gateway.settings.reads]
    app.fast_routes = FastRoutes(gateway, answers, metrics, app.sites, context.guard)
    for router in ROUTERS:
        app.include_router(router)
    return app


def close_app(app: HttpApp) -> None:
    """Answer waiting reads, end subscriptions, and refuse reads of history, before the server drains."""
    for view in (app.context.gateway.live_view, app.context.gateway.committed):
        view.end_reads()
    app.context.watch.close()
    app.context.events.close()
    app.context.history.close()


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RoutelakeError):
        problem = problem_of(error)
    elif isinstance(error, RequestValidationError):
        problem = parameter_problem(error.errors())
    elif isinstance(error, HTTPException):
        problem = _http_problem(request, error)
    else:  # Starlette raises it again after this answer, so that the server logs its traceback
        problem = Problem(INTERNAL, "this is a defect: see the gateway's log")
    return _respond(request, problem, error)


def _respond(request: Request, problem: Problem, error: Exception) -> Response:
    request.scope["routelake.problem"] = problem.kind
    if problem.kind is INTERNAL:
        log.error("unexpected error in an HTTP request", path=ascii(request.scope["path"]), error=repr(error))
    return problem.response()


def _http_problem(request: Request, error: HTTPException) -> Problem:
    """Return the problem for Starlette's own errors: an unknown path, or an unknown method of a path."""
    if error.status_code == METHOD_NOT_ALLOWED.status:
        allowed = request.app.methods(request.scope)
        detail = f"{request.method} is not answered here: use one of {allowed}"
        return Problem(METHOD_NOT_ALLOWED, detail, headers={"allow": allowed})
    if error.status_code == NO_SUCH_ENDPOINT.status:
        return Problem(NO_SUCH_ENDPOINT, "there is no such endpoint: GET /docs lists them")
    return Problem(INTERNAL, str(error.detail))


def _head_alone(send: Send) -> Send:
    """Wrap `send` so that an answer's head is sent, and its end instead of its body."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return send_head

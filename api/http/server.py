# SPDX-License-Identifier: Apache-2.0
"""Serving of the HTTP API inside an event loop of the caller: no signals, no exit, a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, cast

import uvicorn

from api.http.app import HttpApp, close_app
from api.http.bounds import ConnectionBounds
from api.http.local_peers import LocalPeers
from api.http.protocol import GuardedProtocol, Listener
from remoting.errors import why_not_listening
from remoting.server.channel import host_and_port
from remoting.server.tls import Handshakes
from remoting.server.tls_channel import ListenerTls, TlsSniffer
from schemas.errors import SetupError

DRAIN_S: Final = 8
"""Time for requests in progress after a stop, in seconds."""

_BACKLOG: Final = 2048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the process."""
        yield


async def serve_http(
    app: HttpApp,
    host: str,
    port: int,
    *,
    stop: asyncio.Event,
    on_bound: Callable[[int], None] | None = None,
    drain_s: int = DRAIN_S,
    reuse_port: bool = False,
    tls: ListenerTls | None = None,
    handshakes: Handshakes | None = None,
) -> None:
    """Serve until ``stop`` is set, then finish the requests in progress. Long polls are answered at once.

    Args:
        app: Application from `create_app`, for a gateway on this loop.
        host: Address to listen on.
        port: Port; 0 for a free one.
        stop: Event that stops the server.
        on_bound: Callback that gets the port when connections are accepted.
        drain_s: Time for requests in progress after the stop, in seconds.
        reuse_port: Flag for SO_REUSEPORT: several gateway processes on one port.
        tls: TLS of the port; None for plain connections.
        handshakes: Queue of TLS handshakes, shared with other ports; None for a queue of its own.

    Raises:
        SetupError: The address cannot be used. The message names --http.
    """
    listener = listen(host, port, reuse_port=reuse_port)
    context = app.context
    context.guard.local_peers = LocalPeers()
    bounds = ConnectionBounds(context.settings)
    shared = Listener(context.settings, context.metrics, app.fast_routes, bounds, context.refusals)
    make: Callable[..., asyncio.Protocol] = partial(GuardedProtocol, shared)
    if tls is not None:
        make = partial(_sniffer, shared, tls, handshakes or Handshakes())
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", make),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # its warnings are one line for each bad request, and `Refusals` logs them within bounds
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=context.settings.keep_alive_s,
        timeout_graceful_shutdown=drain_s,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        if on_bound is not None:
            on_bound(listener.getsockname()[1])
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        close_app(app)
        server.should_exit = True
        await serving


def _sniffer(
    shared: Listener,
    tls: ListenerTls,
    handshakes: Handshakes,
    **arguments: Any,  # noqa: ANN401 (uvicorn's)
) -> TlsSniffer:
    """Return the protocol that uvicorn makes for each connection.

    The ``ssl`` option of uvicorn takes one context for as long as it listens.
    """
    protocol = GuardedProtocol(shared, **arguments)
    protocol.needs_certificate = tls.needs_certificate
    limit_s = shared.limits.header_timeout_s
    return TlsSniffer(protocol, tls, handshakes, takes_preamble=False, handshake_s=limit_s)


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Open a listening socket.

    Raises:
        SetupError: The address cannot be used.
    """
    where = host_and_port((host, port))
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise SetupError(
            f"--http {where}: cannot find {host!r}: {error.strerror}. Name an address of this machine."
        ) from error
    is_ipv6 = family == socket.AF_INET6
    try:
        listener = socket.create_server(
            address, family=family, backlog=_BACKLOG, reuse_port=reuse_port, dualstack_ipv6=is_ipv6
        )
    except OSError as error:
        raise SetupError(f"--http {where} cannot be listened on: {why_not_listening(error)}.") from error
    listener.setblocking(False)
    return listener

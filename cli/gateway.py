# SPDX-License-Identifier: Apache-2.0
"""`routelake serve` (gateways with the fold), `gateway` (gateways alone) and `health`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import Annotated

import structlog
import typer

from cli import preflight
from cli.data_options import DataOptions
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions, Http
from cli.options import with_options
from runtime.logs import configure
from schemas.errors import SetupError


@with_options
def serve(*, data: DataOptions, of_gateways: GatewayOptions, of_fold: FoldOptions) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    configure("serve")
    listen = of_gateways.listening()
    of_gateways.validate(data, listen, supervised=True)
    of_fold.validate(data)
    from cli.supervised import child, gateways, supervise

    children = [*gateways(of_gateways, listen, data), child("fold", data, of_fold)]
    raise typer.Exit(supervise(children, data, listen, of_gateways))


@with_options
def gateway(*, data: DataOptions, options: GatewayOptions) -> None:
    """Run gateways alone. They answer from the event log or the tables, and write to the event log."""
    if options.workers == 1:
        raise typer.Exit(run(data, options))
    configure("serve")
    listen = options.listening()
    options.validate(data, listen, supervised=True)
    from cli.supervised import gateways, supervise

    raise typer.Exit(supervise(gateways(options, listen, data), data, listen, options))


def run(data: DataOptions, options: GatewayOptions) -> int:
    """Run one gateway until a stop is requested. Returns the exit code. Raises SetupError."""
    configure("gateway")
    listen = options.listening()
    if not options.reuse_port:
        options.validate(data, listen, supervised=False)
    from runtime.no_pandas import keep_pandas_out

    keep_pandas_out()
    from api.http.settings import from_environment
    from api.main import run_gateway
    from api.settings.gateway import GatewaySettings
    from api.settings.namesrv import NamesrvProperties, gateway_settings, read, remoting_settings

    properties = NamesrvProperties() if options.config is None else read(options.config)
    for warning in properties.warnings:
        structlog.get_logger("routelake.gateway").warning("configuration warning", problem=warning)
    bounds = remoting_settings(properties, reuse_port=options.reuse_port)
    socket = options.worker_socket
    sessions_dir = None if socket is None else socket.parent / "sessions"  # shared by all workers
    data.make()
    place = data.lake_place
    settings = GatewaySettings(
        gateway_id=options.id(listen),
        lake_dir=place.folder,
        address=options.address(listen[1]),
        lake_url=place.url,
        allow_config_update=options.allow_config_update,
        self_preservation_percent=options.percent(),
        reads=options.reads,
        max_clock_leap_s=options.max_clock_leap_s,
    )
    tls = options.tls.settings()
    return run_gateway(
        gateway_settings(settings, properties, bounds, listen[1]),
        data.log_url,
        http=listen[0],
        remoting=listen[1],
        remoting_settings=bounds,
        http_settings=replace(from_environment(os.environ), sessions_dir=sessions_dir),
        policy=options.auth.policy(has_tls=tls is not None),
        accounts=options.auth.accounts(),
        tls_settings=tls,
        quotas=options.quotas(),
        worker_socket=socket,
    )


def health(
    http: Http = "127.0.0.1:8080",
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="Timeout, in seconds.")] = 4.0,
) -> None:
    """Check that the gateway on this machine runs, at the address of --http.

    Exit code: 0 it runs, 1 it does not.
    """
    from http.client import HTTPException

    from runtime.progress import ask_gateway

    try:
        at = preflight.listen_address(http, "--http", 8080).local
    except SetupError as error:  # Docker accepts only 0 and 1 from a HEALTHCHECK
        print(f"routelake: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    ends_at = monotonic() + timeout_s
    failures = []
    for scheme in ("http", "https"):
        try:
            status, _ = ask_gateway(f"{scheme}://{at}/healthz", max(0.001, ends_at - monotonic()))
        except (OSError, HTTPException) as error:
            failures.append(str(error) or type(error).__name__)
            if isinstance(error, TimeoutError):
                break
            continue
        if status == HTTPStatus.OK:
            print(f"{at}: healthy")
            return
        failures.append(f"/healthz answers {status}")
    print(f"routelake: {at} is not healthy: {'; '.join(dict.fromkeys(failures))}", file=sys.stderr)
    raise typer.Exit(1)

# SPDX-License-Identifier: Apache-2.0
"""What serve, gateway and fold do before they start: where to listen, what is refused, the data directory."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import typer

from cli import preflight
from cli.auth_options import (
    AuthOptions,
)
from cli.encryption import Encryption
from cli.exposure import check_exposed
from cli.preflight import Listen
from cli.preservation import PreservationOptions
from pipelines.backup.marker import refuse_unfinished_restore
from runtime.children import SUPERVISED
from runtime.machine import guard_data

_HTTP_PORT = 8080
_REMOTING_PORT = 9876
HTTP = f"127.0.0.1:{_HTTP_PORT}"
REMOTING = f"127.0.0.1:{_REMOTING_PORT}"
FRAME_LIMIT_MIB = 64


def listening(context: typer.Context, http: str, remoting: str, config: Path | None) -> tuple[Listen, Listen]:
    """Where HTTP and the NameServer listen; the latter by --remoting or its variable, else the file, else the default.

    Raises:
        SetupError: One cannot be read.
    """
    listen = preflight.listen_address(remoting, "--remoting", _REMOTING_PORT)
    source = context.get_parameter_source("remoting")
    if config is not None and (source is None or source.name in ("DEFAULT", "DEFAULT_MAP")):
        from api.settings.namesrv import read
        from api.settings.start import listen_address

        listen = Listen(*listen_address(read(config), listen))
    return preflight.listen_address(http, "--http", _HTTP_PORT), listen


def log_url(data_dir: Path, url: str) -> str:
    """The event log to use: the one named, else SQLite in the data directory."""
    return url or f"sqlite://{data_dir.resolve()}/events.db"


def default_gateway_id(remoting: Listen) -> str:
    """Host name and port: different for every gateway of a log."""
    return f"{socket.gethostname()}:{remoting.port}"


def judge(
    data_dir: Path,
    log: str,
    listen: tuple[Listen, Listen],
    config: Path | None,
    frame_limit_mib: int,
    who: AuthOptions,
    tls: Encryption,
    preservation: PreservationOptions,
    *,
    supervised: bool,
) -> None:
    """Refuse what a gateway cannot start with, before anything is made, and say whom it lets in. Raises SetupError."""
    preflight.check_gateway(config, frame_limit_mib, os.environ)
    preservation.percent()
    who.accounts()
    tls.check()
    preflight.check_data_dir(data_dir)
    preflight.check_log(log, data_dir)
    preflight.check_lake(data_dir, fold=False)
    preflight.check_listening(*listen, supervised=supervised)
    asks = who.enforces or tls.knows_clients
    check_exposed(
        *listen,
        remoting_asks=asks,
        http_asks=asks or bool(os.environ.get("ROUTELAKE_HTTP_TOKENS", "").split()),
        insecure=who.insecure,
    )
    exposure = None if asks else preflight.exposure(*listen)
    if exposure is not None and SUPERVISED not in os.environ:
        print(f"routelake: {exposure}", file=sys.stderr)


def make(data_dir: Path, data_mode: str) -> None:
    """Make the data directory. Raises SetupError when it cannot be written, or a restore into it was cut off."""
    refuse_unfinished_restore(data_dir)
    guard_data(data_dir, data_mode)

# SPDX-License-Identifier: Apache-2.0
"""Gateways and fold as children of a supervisor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from api.settings.gateway import Reads
from cli.auth_options import (
    AuthOptions,
)
from cli.encryption import Encryption
from cli.preflight import Listen
from cli.starting import make

if TYPE_CHECKING:
    from runtime.supervisor import Child


def gateway_options(
    listen: tuple[Listen, Listen],
    frame_limit_mib: int,
    config: Path | None,
    allow_config_update: bool,
    reads: Reads,
    who: AuthOptions,
) -> list[str]:
    """What every gateway process of a supervisor is told alike."""
    http, remoting = listen
    return [
        *("--http", str(http), "--remoting", str(remoting), "--frame-limit-mib", str(frame_limit_mib)),
        *("--reads", reads),
        *(["--config", str(config)] if config else []),
        *(["--allow-config-update"] if allow_config_update else []),
        *who.arguments(),
    ]


def again_each(option: str, values: list[str] | None) -> list[str]:
    """An option that may be said several times, as it was said."""
    return [part for value in values or () for part in (option, value)]


def again(*arguments: str) -> list[str]:
    """Another command of this program, in a process of its own."""
    return [sys.executable, "-m", "cli.main", *arguments]


def gateways(workers: int, gateway_id: str, options: list[str]) -> list[Child]:
    """The gateway processes; several share their ports, each under an id of its own."""
    from runtime.supervisor import Child

    if workers == 1:
        return [Child("gateway", again("gateway", *options, "--gateway-id", gateway_id), has_secrets=True)]
    return [
        Child(
            f"gateway-{number}",
            again("gateway", *options, "--workers", "1", "--reuse-port", "--gateway-id", f"{gateway_id}/{number}"),
            has_secrets=True,
        )
        for number in range(1, workers + 1)
    ]


def supervise(
    children: list[Child],
    data_dir: Path,
    data_mode: str,
    listen: tuple[Listen, Listen],
    reads: Reads,
    tls: Encryption,
) -> int:
    """Run children until told to stop."""
    from runtime.supervisor import Supervisor

    http, remoting = listen
    scheme = "https" if tls.is_enforced else "http"
    make(data_dir, data_mode)
    supervisor = Supervisor(
        children,
        # Who asks for the tables alone waits for Spark.
        ready_url=f"{scheme}://{http.local}/readyz{'?strict' if reads is Reads.COMMITTED else ''}",
        ready_line=f"routelake is ready: NameServer on {remoting}, HTTP on {scheme}://{http}, data in {data_dir}",
    )
    return supervisor.run()

# SPDX-License-Identifier: Apache-2.0
"""Gateways and fold as children of a supervisor."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from pathlib import Path

from api.settings.gateway import Reads
from cli.data_options import DataOptions
from cli.gateway_options import GatewayOptions
from cli.preflight import Listen
from runtime.supervisor import Child, Supervisor


def again(*arguments: str) -> list[str]:
    """Another command of this program, in a process of its own."""
    return [sys.executable, "-m", "cli.main", *arguments]


def gateways(options: GatewayOptions, listen: tuple[Listen, Listen], data: DataOptions) -> list[Child]:
    """The gateway processes; several share their ports, each under an id of its own."""
    arguments, gateway_id = [*data.arguments(), *options.arguments(listen)], options.id(listen)
    if options.workers == 1:
        return [Child("gateway", again("gateway", *arguments, "--gateway-id", gateway_id), has_secrets=True)]
    sockets = Path(tempfile.mkdtemp(prefix="routelake-"))  # for this user alone; a short path, unix(7)
    atexit.register(shutil.rmtree, sockets, ignore_errors=True)

    def worker(number: int) -> Child:
        own = ["--gateway-id", f"{gateway_id}/{number}", "--worker-socket", str(sockets / str(number))]
        command = again("gateway", *arguments, "--workers", "1", "--reuse-port", *own)
        return Child(f"gateway-{number}", command, has_secrets=True)

    return [worker(number) for number in range(1, options.workers + 1)]


def supervise(children: list[Child], data: DataOptions, listen: tuple[Listen, Listen], options: GatewayOptions) -> int:
    """Run children until told to stop."""
    http, remoting = listen
    scheme = "https" if options.tls.is_enforced else "http"
    data.make()
    supervisor = Supervisor(
        children,
        # Who asks for the tables alone waits for Spark.
        ready_url=f"{scheme}://{http.local}/readyz{'?strict' if options.reads is Reads.COMMITTED else ''}",
        ready_line=f"routelake is ready: NameServer on {remoting}, HTTP on {scheme}://{http}, data in {data.data_dir}",
    )
    return supervisor.run()

# SPDX-License-Identifier: Apache-2.0
"""Gateways and fold as children of a supervisor: the options that they get, and the decoder for `cli.child`.

A child gets its options as one line of JSON on its standard input. The input stays open, and its end shows that the
supervisor has ended. The command line of a child only identifies the child, for `ps` and for `wait_for_orphans`.
"""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.settings.gateway import Reads
from cli.data_options import DataOptions
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions
from cli.options import Options
from runtime.supervisor import Child, Supervisor

if TYPE_CHECKING:
    from cli.preflight import Listen

_KINDS: Final[dict[str, type[Options]]] = {"gateway": GatewayOptions, "fold": FoldOptions}


def child(kind: str, data: DataOptions, options: Options, name: str = "") -> Child:
    """Return a gateway or a fold as a child process.

    Args:
        kind: ``gateway`` or ``fold``.
        data: Options of the data.
        options: Other options.
        name: Name in messages. Default: the kind.
    """
    command = [sys.executable, "-m", "cli.child", kind, "--data-dir", str(data.data_dir), "--name", name or kind]
    settings = json.dumps(msgspec.to_builtins([data, options], enc_hook=str))  # ASCII, so that any path can be sent
    return Child(name or kind, command, has_secrets=kind == "gateway", settings=settings.encode() + b"\n")


def gateways(options: GatewayOptions, listen: tuple[Listen, Listen], data: DataOptions) -> list[Child]:
    """Return the gateway processes. Several gateways share their ports, and each has its own id."""
    http, remoting = map(str, listen)
    worker_options = replace(options, http=http, remoting=remoting, gateway_id=options.id(listen), workers=1)
    if options.workers == 1:
        return [child("gateway", data, worker_options)]
    sockets = Path(tempfile.mkdtemp(prefix="routelake-"))  # only for this user, and with a short path, unix(7)
    atexit.register(shutil.rmtree, sockets, ignore_errors=True)

    def worker(number: int) -> Child:
        own = replace(
            worker_options,
            gateway_id=f"{worker_options.gateway_id}/{number}",
            reuse_port=True,
            worker_socket=sockets / str(number),
        )
        return child("gateway", data, own, f"gateway-{number}")

    return [worker(number) for number in range(1, options.workers + 1)]


def supervise(children: list[Child], data: DataOptions, listen: tuple[Listen, Listen], options: GatewayOptions) -> int:
    """Run children until a stop is requested. Returns the exit code."""
    http, remoting = listen
    scheme = "https" if options.tls.is_enforced else "http"
    data.make()
    supervisor = Supervisor(
        children,
        # A gateway that answers only from the tables waits for Spark.
        ready_url=f"{scheme}://{http.local}/readyz{'?strict' if options.reads is Reads.COMMITTED else ''}",
        ready_line=f"routelake is ready: NameServer on {remoting}, HTTP on {scheme}://{http}, data in {data.data_dir}",
    )
    return supervisor.run()


def settings_of(kind: str, text: str) -> tuple[DataOptions, Any]:
    """Decode the options that a supervisor sent to a child."""
    data, options = json.loads(text)

    def path(_: type, value: str) -> Path:
        return Path(value)

    return (
        msgspec.convert(data, DataOptions, dec_hook=path),
        msgspec.convert(options, _KINDS[kind], dec_hook=path),
    )

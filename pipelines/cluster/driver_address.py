# SPDX-License-Identifier: Apache-2.0
"""Whether a master takes connections: asked before Spark is, which would try for a minute and say something else."""

from __future__ import annotations

import socket
from typing import Final

from pipelines.cluster.master import Cluster
from schemas.errors import UnavailableError

_TIMEOUT_S: Final = 10.0


def own_address(cluster: Cluster) -> str:
    """This machine's address as a master sees it, by which executors reach the driver.

    Raises:
        UnavailableError: no master takes a connection; the message says why and what to do.
    """
    why = []
    for host, port in cluster.addresses:
        try:
            with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
                own: str = connection.getsockname()[0]
                return own
        except OSError as error:
            why.append(f"{host}:{port} {error.strerror or error}")
    what = "the API server of Kubernetes" if cluster.is_kubernetes else "a Spark master"
    raise UnavailableError(
        f"--master {cluster.master} does not answer ({'; '.join(why)}). Start {what} there, or name the right "
        "address; routelake folds in its own process with --master local."
    )

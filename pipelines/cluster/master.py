# SPDX-License-Identifier: Apache-2.0
"""Cluster of the fold's executors, and the Spark options for it.

Source: Spark 4.2's "Cluster Mode Overview", "Spark Standalone Mode", "Running Spark on Kubernetes", "Security".
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from schemas.errors import SetupError, UnavailableError
from schemas.properties import PropertiesError, parse_file

_TIMEOUT_S: Final = 10.0
"""Seconds for a master to accept a connection. Spark itself would try for a minute and report another error."""

LOCAL: Final = "local"
"""Value instead of a master's URL: executors are threads of the fold's own JVM."""

MASTER_FORMS: Final = "local, spark://HOST:PORT[,HOST:PORT] or k8s://https://HOST:PORT"

AUTHENTICATE: Final = "spark.authenticate"
_SECRETS: Final = ("spark.authenticate.secret", "spark.authenticate.secret.file")
_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
_POD_TEMPLATE: Final = "spark.kubernetes.executor.podTemplateFile"
_MOUNT: Final = re.compile(r"spark\.kubernetes\.executor\.volumes\.[^.]+\.[^.]+\.mount\.path")
_OURS: Final = ("spark.master", "spark.submit.deployMode", "spark.app.name", "spark.sql.shuffle.partitions")

_EXECUTOR_JVM: Final = "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true"


class Address(NamedTuple):
    """Address on which a master listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, from the options.

    Attributes:
        master: URL of the master.
        shared_dir: folder that driver and executors access under this path.
        config_file: file with Spark properties for the cluster, or None without one.
        config: properties in the file. They are not printed, as they may have a secret.
    """

    master: str
    shared_dir: Path
    config_file: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_kubernetes(self) -> bool:
        """Return True if executors are pods."""
        return self.master.startswith("k8s://")

    @property
    def addresses(self) -> list[Address]:
        """Addresses of the masters, or of the API server."""
        return master_addresses(self.master)


def read_cluster(master: str, shared_dir: Path, config_file: Path | None) -> Cluster | None:
    """Make the cluster from --master, --shared-dir and --spark-config. None for ``local``.

    Raises:
        SetupError: the options are unusable. The message says what to do.
    """
    if master == LOCAL:
        if config_file is not None:
            raise SetupError(
                f"--spark-config {config_file} needs a cluster. Set --master spark://HOST:PORT, or remove it."
            )
        return None
    master_addresses(master)
    config = {} if config_file is None else _read(config_file)
    cluster = Cluster(master, shared_dir, config_file, config)
    where = "a file that --spark-config names" if config_file is None else f"--spark-config {config_file}"
    if taken := [name for name in _OURS if name in config]:
        raise SetupError(f"--spark-config {config_file}: {taken[0]} is set by routelake. Remove it.")
    if cluster.is_kubernetes:
        _judge_kubernetes(cluster, where)
    elif config.get(AUTHENTICATE, "").lower() not in ("true", "false"):
        raise SetupError(
            f"--master {master}: every client that reaches the driver's ports can run code in it, unless Spark "
            f"requires authentication. Write '{AUTHENTICATE} true' and '{_SECRETS[0]} ...' into {where}, and start "
            f"master and workers with that file, too (docs/how-to/operate/spark-cluster.md). Write "
            f"'{AUTHENTICATE} false' if no other client can reach the ports."
        )
    elif config[AUTHENTICATE].lower() == "true" and not any(config.get(name) for name in _SECRETS):
        raise SetupError(f"{where}: {AUTHENTICATE} needs {_SECRETS[0]}, the same as the master's and the workers'.")
    return cluster


def _judge_kubernetes(cluster: Cluster, where: str) -> None:
    if not any(cluster.config.get(name) for name in _IMAGES):
        raise SetupError(f"--master {cluster.master}: set the image of the executors in {where}, {_IMAGES[0]}.")
    mounts = [Path(path) for name, path in cluster.config.items() if _MOUNT.fullmatch(name)]
    seen = any(cluster.shared_dir.is_relative_to(path) for path in mounts)
    if not seen and not cluster.config.get(_POD_TEMPLATE):
        raise SetupError(
            f"--master {cluster.master}: executors would not see {cluster.shared_dir}. Mount the volume that has it by "
            "spark.kubernetes.executor.volumes.persistentVolumeClaim.NAME.mount.path and .options.claimName in "
            f"{where}, or name another folder with --shared-dir."
        )


def master_addresses(master: str) -> list[Address]:
    """Addresses of the masters in a URL.

    Raises:
        SetupError: the URL has another form.
    """
    if match := re.fullmatch(r"spark://([^/?#@]+)", master):
        found = [_address(text) for text in match[1].split(",")]
        if all(found):
            return [address for address in found if address is not None]
    elif match := re.fullmatch(r"k8s://(?:(https?)://)?([^/?#@]+)/?", master):
        default = 80 if match[1] == "http" else 443
        address = _address(match[2]) or _address(f"{match[2]}:{default}")
        if address is not None:
            return [address]
    raise SetupError(f"--master {master!r}: expected {MASTER_FORMS}.")


def _address(text: str) -> Address | None:
    match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65536:
        return None
    return Address(match[1].strip("[]"), int(match[2]))


def _read(file: Path) -> dict[str, str]:
    try:
        return {entry.key: entry.value.strip() for entry in parse_file(file.read_bytes())}
    except OSError as error:
        raise SetupError(f"--spark-config {file} cannot be read: {error.strerror}.") from error
    except PropertiesError as error:
        raise SetupError(f"--spark-config {file}: {error}.") from error


def spark_options(cluster: Cluster, driver_host: str, jars: list[Path]) -> dict[str, str]:
    """Spark options for a cluster, in addition to those for every fold. Pure.

    Args:
        cluster: the cluster. Its own properties have precedence and are not in the result, as they may have a secret.
        driver_host: address of this machine for executors.
        jars: files in the driver's class path, which executors need, too.
    """
    options = {
        "spark.driver.host": driver_host,
        "spark.driver.bindAddress": driver_host,
        # As for the driver: each executor is a JVM that mainly moves data for its Python workers.
        "spark.executor.extraJavaOptions": _EXECUTOR_JVM,
        "spark.jars": ",".join(map(str, jars)),
        # An abandoned executor may still write to the checkpoint. In this format its files have unique names.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        # By default, executors log each task twice.
        "spark.executor.syncLogLevel.enabled": "true",
        AUTHENTICATE: "true",
    }
    return {name: value for name, value in options.items() if name not in cluster.config}


def shards_for(cores: int, offered: list[int]) -> int:
    """Return the next supported number of shards from two per core on, so that some executors may be slower.

    Args:
        cores: cores of all executors.
        offered: supported numbers of shards.
    """
    return min((number for number in sorted(offered) if number >= 2 * cores), default=max(offered))


def own_address(cluster: Cluster) -> str:
    """Address of this machine in a connection to a master. Executors reach the driver by it.

    Raises:
        UnavailableError: no master accepts a connection. The message says why and what to do.
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
        f"--master {cluster.master} does not answer ({'; '.join(why)}). Start {what}, or correct the address. With "
        "--master local the fold needs no cluster."
    )

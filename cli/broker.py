# SPDX-License-Identifier: Apache-2.0
"""``routelake broker`` and ``routelake fleet``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cli.client_options import ClientOptions, HttpToken, secret
from cli.options import NamesrvOrHttp, Options, namesrv_source, with_options
from cli.preflight import check_folder, check_free, listen_address
from clients.addresses import namesrv_addresses
from runtime.logs import configure
from schemas.errors import SetupError

if TYPE_CHECKING:
    from clients.credentials import Credentials

_BROKER_PORT = 10911


def listen_settings(text: str) -> dict[str, str]:
    """Convert HOST:PORT to settings.

    Raises:
        SetupError: The text is not HOST:PORT, or other machines could not reach the broker at this address.
    """
    listen = listen_address(text, "--listen", _BROKER_PORT)
    if listen.is_everywhere:
        raise SetupError(f"--listen {text!r}: the broker registers this address. Name one that clients can reach.")
    if listen.port:
        check_free(listen, "--listen")
    return {"brokerIP1": str(listen).rpartition(":")[0], "listenPort": str(listen.port)}


def file_settings(path: Path) -> dict[str, str]:
    """Read a broker.conf. As in RocketMQ, the last value of a repeated key counts. Raises SetupError."""
    from clients.broker.config import broker_config
    from schemas.properties import PropertiesError, parse_file

    try:
        return {entry.key: entry.value for entry in parse_file(path.read_bytes())}
    except OSError as error:
        raise SetupError(f"--config {path}: cannot be read: {error.strerror}") from error
    except PropertiesError as error:
        faults = [f"--config {path}: {error}"]
        try:
            broker_config({entry.key: entry.value for entry in error.entries}, str(path))
        except SetupError as more:
            faults.append(str(more))
        raise SetupError("; ".join(faults)) from error


def inner_credentials(text: str) -> Credentials:
    """Credentials in innerClientAuthenticationCredentials of a broker.conf.

    Raises:
        SetupError: The value is not {"accessKey": ..., "secretKey": ...}.
    """
    from clients.credentials import Credentials

    try:
        found = msgspec.json.decode(text, type=dict[str, str])
        return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken", ""))
    except (msgspec.MsgspecError, KeyError):
        raise SetupError(
            'innerClientAuthenticationCredentials: expected {"accessKey":"...","secretKey":"..."}'
        ) from None


@with_options
def broker(
    namesrv: NamesrvOrHttp = "",
    config_file: Annotated[
        Path | None, typer.Option("--config", "-c", help="File like broker.conf (key=value). Options win over it.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", help="Address that answers mqadmin and is registered, HOST:PORT. Port 0: a free port."
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Name of the cluster (brokerClusterName).")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the broker (brokerName).")] = None,
    broker_id: Annotated[
        int | None, typer.Option("--id", help="Id of the broker (brokerId): 0 a master, 1 and above slaves.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Folder of the broker. Topics are in config/topics.json in it. Default: ./store."),
    ] = None,
    auto_create_topic: Annotated[
        bool | None,
        typer.Option(
            "--auto-create-topic/--no-auto-create-topic",
            help="Create a topic at the first message to it (autoCreateTopicEnable).",
        ),
    ] = None,
    http_token: HttpToken = "",
    *,
    client: ClientOptions,
) -> None:
    """Run a broker agent. It has topics, registers them and answers mqadmin, but stores no messages."""
    from cli.run_brokers import run_broker
    from clients.broker.config import broker_config

    configure("broker")
    options = {
        "namesrvAddr": namesrv or None,
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": None if broker_id is None else str(broker_id),
        "storePathRootDir": None if store is None else str(store),
        "autoCreateTopicEnable": None if auto_create_topic is None else str(auto_create_topic).lower(),
    }
    settings = {
        "storePathRootDir": "store",
        **({} if config_file is None else file_settings(config_file)),
        **({} if listen is None else listen_settings(listen)),
        **{key: value for key, value in options.items() if value is not None},
    }
    inner = settings.pop("innerClientAuthenticationCredentials", "")
    keys = client.keys() if client.access_key or client.secret_key or not inner else inner_credentials(inner)
    config, ignored = broker_config(settings, "options" if config_file is None else str(config_file))
    check_folder(Path(config.store_path_root_dir), "--store")
    written = namesrv or config_file is None
    source = namesrv_source(namesrv, "--namesrv") if written else f"namesrvAddr of {config_file}"
    namesrvs = namesrv_addresses(config.namesrv_addr, source, http=True)
    raise typer.Exit(
        run_broker(
            config,
            namesrvs,
            ignored=ignored,
            http_token=secret("--http-token", http_token),
            keys=keys,
            tls=client.encryption(),
        )
    )


@dataclass(frozen=True, kw_only=True)
class FleetOptions(Options):
    """The options of a fleet, by the names of `clients.broker.fleet.FleetSettings`."""

    brokers: Annotated[int, typer.Option("--brokers", min=1, help="Number of brokers.")] = 300
    topics: Annotated[
        int, typer.Option("--topics", min=0, help="Number of topics per broker, in addition to the built-in ones.")
    ] = 10_000
    clusters: Annotated[int, typer.Option("--clusters", min=1, help="Number of clusters.")] = 1
    period_s: Annotated[
        float,
        typer.Option(
            "--heartbeat-period-s", min=0.01, help="Time between two registrations of one broker, in seconds."
        ),
    ] = 30.0
    changes_per_s: Annotated[
        float, typer.Option("--changes-per-s", min=0, help="Topic changes per second in the whole fleet.")
    ] = 0.0
    duration_s: Annotated[
        float, typer.Option("--duration-s", min=0, help="Stop after this many seconds. 0: stop with Ctrl-C.")
    ] = 0.0
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Maximum number of concurrent registrations.")] = 32
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.01, help="Timeout of one registration, in seconds.")
    ] = 60.0
    force_register: Annotated[
        bool,
        typer.Option(
            "--force-register/--ask-first", help="Send all topics each time, or first ask whether they have changed."
        ),
    ] = True
    unregister: Annotated[
        bool, typer.Option("--unregister/--vanish", help="At the end: unregister, or only close the connections.")
    ] = True
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random queue numbers and topic changes.")] = 1


@with_options
def fleet(
    namesrv: NamesrvOrHttp = "",
    *,
    options: FleetOptions,
    http_token: HttpToken = "",
    client: ClientOptions,
) -> None:
    """Run many brokers in one process, for rehearsals and benchmarks."""
    from cli.run_brokers import run_fleet
    from clients.broker.fleet import FleetSettings

    configure("fleet")
    settings = FleetSettings(
        namesrvs=namesrv_addresses(namesrv, namesrv_source(namesrv, "--namesrv"), http=True),
        http_token=secret("--http-token", http_token),
        credentials=client.keys(),
        tls=client.encryption(),
        **vars(options),
    )
    raise typer.Exit(run_fleet(settings))

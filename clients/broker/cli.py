"""``routelake broker`` and ``routelake fleet``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clients.addresses import MAX_PORT
from deploy.logs import configure
from schemas.errors import SetupError

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv",
        "-n",
        envvar=["ROUTELAKE_NAMESRV", "NAMESRV_ADDR"],
        help="NameServers: 'host:9876;other:9876', in quotes; http://host:8080 registers over routelake's HTTP door.",
    ),
]
HttpToken = Annotated[
    str, typer.Option("--http-token", envvar="ROUTELAKE_HTTP_TOKEN", help="Bearer token for the HTTP door.")
]


def name_servers(text: str) -> list[str]:
    """The entries of a list of NameServers; what each means is decided later.

    Raises:
        SetupError: There is none.
    """
    found = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not found:
        raise SetupError("no NameServer is named: give --namesrv 'host:9876', or set NAMESRV_ADDR")
    return found


def listen_settings(text: str) -> dict[str, str]:
    """HOST:PORT as settings.

    Raises:
        SetupError: It is none.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise SetupError(f"--listen {text!r}: expected HOST:PORT, for example 127.0.0.1:10911")
    return {"brokerIP1": host, "listenPort": port}


def broker(
    namesrv: Namesrv = "",
    config_file: Annotated[
        Path | None, typer.Option("--config", "-c", help="A broker.conf (key=value); options win over it.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="HOST:PORT to answer mqadmin on, and to register. Port 0: a free one."),
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="brokerClusterName.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="brokerName.")] = None,
    broker_id: Annotated[int | None, typer.Option("--id", help="brokerId: 0 a master, 1 and above slaves.")] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Its folder; topics are in config/topics.json there. Default: ./store."),
    ] = None,
    auto_create_topic: Annotated[
        bool | None,
        typer.Option("--auto-create-topic/--no-auto-create-topic", help="autoCreateTopicEnable; on by default."),
    ] = None,
    http_token: HttpToken = "",
) -> None:
    """Run a broker agent: topics, registration, answers to mqadmin; it keeps no messages."""
    from clients.broker.config import broker_config, parse_properties
    from clients.broker.run import run_broker

    configure("broker")
    settings: dict[str, str] = {"storePathRootDir": "store"}
    source = "options"
    if config_file is not None:
        source = str(config_file)
        try:
            settings |= parse_properties(config_file.read_text(encoding="utf-8"), source)
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"--config {config_file}: cannot be read: {error}") from error
    if listen is not None:
        settings |= listen_settings(listen)
    options = {
        "namesrvAddr": namesrv or None,
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": None if broker_id is None else str(broker_id),
        "storePathRootDir": None if store is None else str(store),
        "autoCreateTopicEnable": None if auto_create_topic is None else str(auto_create_topic).lower(),
    }
    settings |= {key: value for key, value in options.items() if value is not None}
    config, ignored = broker_config(settings, source)
    raise typer.Exit(run_broker(config, name_servers(config.namesrv_addr), ignored=ignored, http_token=http_token))


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(broker)

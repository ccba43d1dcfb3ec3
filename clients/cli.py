"""The `routelake` command. Each command is thin: it reads options and hands over.

Options are environment variables, too: ``--data-dir`` is ROUTELAKE_DATA_DIR, and so on. Exit codes: 0 done, 1 failed,
2 cannot start as things are (the message says what to do).
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from clients import kv_import
from clients.admin.lazy import admin
from clients.broker import cli as broker_cli
from clients.options import (
    AllowConfigUpdate,
    Config,
    DataDir,
    DriverMemory,
    FrameLimitMib,
    GatewayId,
    Http,
    LivenessS,
    LogRetentionH,
    LogUrl,
    Remoting,
    RetentionDays,
    Shards,
    TriggerMs,
    Workers,
)
from clients.route import cli as route_cli
from deploy.logs import configure
from schemas.errors import RoutelakeError, SetupError

if TYPE_CHECKING:
    from deploy.supervisor import Child

app = typer.Typer(
    name="routelake",
    help="A RocketMQ NameServer on the lakehouse.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(admin, name="admin")

_HTTP = "127.0.0.1:8080"
_REMOTING = "127.0.0.1:9876"
_FRAME_LIMIT_MIB = 64


def remoting_option(context: typer.Context, given: str, config: Path | None) -> str:
    """HOST:PORT to listen on: --remoting or its variable, else the file's, else the default."""
    source = context.get_parameter_source("remoting")
    if config is None or (source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")):
        return given
    from api.settings.namesrv import read
    from api.settings.start import listen_address

    host, port = listen_address(read(config), address(given, "--remoting"))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def log_url(data_dir: Path, url: str) -> str:
    """The event log to use: the one named, else SQLite in the data directory."""
    return url or f"sqlite://{data_dir.resolve()}/events.db"


def address(text: str, option: str) -> tuple[str, int]:
    """HOST:PORT. Raises SetupError naming the option."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SetupError(f"{option} {text!r}: expected HOST:PORT, for example 127.0.0.1:9876.")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (asked for by leaving the host out)


@app.command()
def serve(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    log: LogUrl = "",
    http: Http = _HTTP,
    remoting: Remoting = _REMOTING,
    config: Config = None,
    allow_config_update: AllowConfigUpdate = False,
    frame_limit_mib: FrameLimitMib = _FRAME_LIMIT_MIB,
    trigger_ms: TriggerMs = 0,
    shards: Shards = 2,
    history_retention_days: RetentionDays = 30,
    liveness_interval_s: LivenessS = 10.0,
    log_retention_hours: LogRetentionH = 24.0,
    driver_memory: DriverMemory = "1g",
    gateway_id: GatewayId = "",
    workers: Workers = 1,
) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    from deploy.supervisor import Child, python_command

    configure("serve")
    remoting = remoting_option(context, remoting, config)
    common = ["--data-dir", str(data_dir), "--log", log_url(data_dir, log)]
    gateway_options = _gateway_options(http, remoting, frame_limit_mib, config, allow_config_update)
    fold_options = [
        *("--trigger-ms", str(trigger_ms)),
        *("--shards", str(shards)),
        *("--history-retention-days", str(history_retention_days)),
        *("--liveness-interval-s", str(liveness_interval_s)),
        *("--log-retention-hours", str(log_retention_hours)),
        *("--driver-memory", driver_memory),
    ]
    children = [
        *_gateways(workers, gateway_id or default_gateway_id(remoting), [*common, *gateway_options]),
        Child("fold", python_command("fold", *common, *fold_options)),
    ]
    raise typer.Exit(_supervise(children, data_dir, http, remoting, workers))


@app.command()
def gateway(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    log: LogUrl = "",
    http: Http = _HTTP,
    remoting: Remoting = _REMOTING,
    config: Config = None,
    allow_config_update: AllowConfigUpdate = False,
    frame_limit_mib: FrameLimitMib = _FRAME_LIMIT_MIB,
    gateway_id: GatewayId = "",
    workers: Workers = 1,
    reuse_port: Annotated[bool, typer.Option("--reuse-port", hidden=True)] = False,
) -> None:
    """Run gateways alone: they answer from the tables and write to the event log."""
    if workers > 1:
        configure("serve")
        remoting = remoting_option(context, remoting, config)
        options = [
            *("--data-dir", str(data_dir), "--log", log_url(data_dir, log)),
            *_gateway_options(http, remoting, frame_limit_mib, config, allow_config_update),
        ]
        children = _gateways(workers, gateway_id or default_gateway_id(remoting), options)
        raise typer.Exit(_supervise(children, data_dir, http, remoting, workers))
    from api.view.lean import keep_pandas_out

    keep_pandas_out()
    from api.gateway import GatewaySettings
    from api.main import run_gateway
    from api.settings.namesrv import NamesrvProperties, read
    from api.settings.start import gateway_settings, remoting_settings

    configure("gateway")
    properties = NamesrvProperties() if config is None else read(config)
    for warning in properties.warnings:
        structlog.get_logger("routelake.gateway").warning(warning)
    listen = address(remoting_option(context, remoting, config), "--remoting")
    bounds = remoting_settings(properties, frame_limit_mib, reuse_port=reuse_port)
    _writable(data_dir)
    settings = GatewaySettings(
        gateway_id=gateway_id or default_gateway_id(remoting_option(context, remoting, config)),
        lake_dir=(data_dir / "lake").resolve(),
        allow_config_update=allow_config_update,
    )
    raise typer.Exit(
        run_gateway(
            gateway_settings(settings, properties, bounds, listen),
            log_url(data_dir, log),
            http=address(http, "--http"),
            remoting=listen,
            bounds=bounds,
        )
    )


@app.command()
def fold(
    data_dir: DataDir = Path("data"),
    log: LogUrl = "",
    trigger_ms: TriggerMs = 0,
    shards: Shards = 2,
    history_retention_days: RetentionDays = 30,
    liveness_interval_s: LivenessS = 10.0,
    log_retention_hours: LogRetentionH = 24.0,
    driver_memory: DriverMemory = "1g",
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    configure("fold")
    _writable(data_dir)
    from pipelines.job import FoldSettings
    from pipelines.main import exit_now, run_fold

    settings = FoldSettings(
        lake_dir=(data_dir / "lake").resolve(),
        checkpoint_dir=(data_dir / "checkpoints" / "fold").resolve(),
        log_url=log_url(data_dir, log),
        scratch_dir=(data_dir / "scratch").resolve(),
        shards=shards,
        trigger_ms=trigger_ms,
        liveness_interval_s=liveness_interval_s,
        retention_days=history_retention_days,
        log_retention_hours=log_retention_hours,
        driver_memory=driver_memory,
    )
    exit_now(_guarded(lambda: run_fold(settings)))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(context: typer.Context) -> None:
    """Run the tests. Options go to pytest; --deep adds the long ones."""
    from deploy.developer import run_tests

    raise typer.Exit(run_tests(context.args))


@app.command()
def check() -> None:
    """Check style, types and import contracts."""
    from deploy.developer import run_checks

    raise typer.Exit(run_checks())


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which of them; all without a name.")] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="How often each side of a comparison is measured.")
    ] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it runs, not how fast.")] = False,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Age of the lake that growth makes.")] = 100_000,
    serve: Annotated[str, typer.Option("--serve", help="More options of routelake, such as '--workers 2'.")] = "",
    results: Annotated[Path | None, typer.Option("--results", help="Folder of the results.")] = None,
) -> None:
    """Measure routelake, side by side with Apache RocketMQ's NameServer; see docs/performance.md."""
    import shlex

    from benchmarks.harness.run import run_benches

    options = shlex.split(serve)
    raise typer.Exit(
        run_benches(names or [], rounds=rounds, quick=quick, epochs=epochs, serve_options=options, results=results)
    )


def default_gateway_id(remoting: str) -> str:
    """Host name and port: different for every gateway of a log."""
    return f"{socket.gethostname()}:{address(remoting, '--remoting')[1]}"


def _gateway_options(
    http: str, remoting: str, frame_limit_mib: int, config: Path | None, allow_config_update: bool
) -> list[str]:
    """What every gateway process of a supervisor is told alike."""
    return [
        *("--http", http, "--remoting", remoting, "--frame-limit-mib", str(frame_limit_mib)),
        *(["--config", str(config)] if config else []),
        *(["--allow-config-update"] if allow_config_update else []),
    ]


def _gateways(workers: int, gateway_id: str, options: list[str]) -> list[Child]:
    """The gateway processes; several share their ports, each under an id of its own."""
    from deploy.supervisor import Child, python_command

    if workers == 1:
        return [Child("gateway", python_command("gateway", *options, "--gateway-id", gateway_id))]
    return [
        Child(
            f"gateway-{number}",
            python_command(
                "gateway", *options, "--workers", "1", "--reuse-port", "--gateway-id", f"{gateway_id}/{number}"
            ),
        )
        for number in range(1, workers + 1)
    ]


def _supervise(children: list[Child], data_dir: Path, http: str, remoting: str, workers: int) -> int:
    """Run children until told to stop."""
    from deploy.supervisor import Supervisor, check_port_is_free

    host, port = address(http, "--http")
    address(remoting, "--remoting")
    _writable(data_dir)
    if workers > 1:
        # Sharing a port on purpose would let somebody else's routelake share it, too.
        check_port_is_free(*address(remoting, "--remoting"), "--remoting")
        check_port_is_free(host, port, "--http")
    supervisor = Supervisor(
        children,
        ready_url=f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/readyz",  # noqa: S104 (compared, not bound)
        ready_line=f"routelake is ready: NameServer on {remoting}, HTTP on http://{http}, data in {data_dir}",
    )
    return supervisor.run()


def _writable(data_dir: Path) -> None:
    """Make the data directory. Raises SetupError when it cannot be written."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        probe = data_dir / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SetupError(
            f"cannot write to the data directory {data_dir}: {error.strerror}. "
            "Choose another --data-dir or change its owner."
        ) from error


def _guarded(run: object) -> int:
    try:
        assert callable(run)
        return int(run())
    except RoutelakeError as error:
        print(f"routelake: {error}", file=sys.stderr)
        return 2 if isinstance(error, SetupError) else 1


broker_cli.register(app)
kv_import.register(app)
route_cli.register(app)


def main() -> None:
    """Entry point: errors raised on purpose become one line and an exit code."""
    try:
        app()
    except RoutelakeError as error:
        print(f"routelake: {error}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, SetupError) else 1) from None


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The `routelake` command. Each command is thin: it reads options and hands over.

Options are environment variables, too: ``--data-dir`` is ROUTELAKE_DATA_DIR, and so on. Exit codes: 0 done, 1 failed,
2 cannot start as things are (the message says what to do).
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from api.settings.gateway import Reads
from cli import backup, developer, doctor, history, kv_import, preflight, spark_sql, sql, usage
from cli import broker as broker_cli
from cli import route as route_cli
from cli.admin.lazy import admin
from cli.auth_options import (
    AdminPlaintext,
    AuthFile,
    AuthOptions,
    Insecure,
    Mode,
    OidcAudience,
    OidcIssuer,
    OidcRoleClaim,
    RequireTls,
)
from cli.encryption import Encryption
from cli.exposure import check_exposed
from cli.options import (
    AllowConfigUpdate,
    Config,
    DataDir,
    DataMode,
    DriverMemory,
    FoldNiceness,
    FrameLimitMib,
    GatewayId,
    Http,
    LivenessS,
    LogRetentionH,
    LogUrl,
    Quota,
    ReadsFrom,
    Remoting,
    RetentionDays,
    Shards,
    TlsCert,
    TlsClientAuth,
    TlsClientCa,
    TlsConfig,
    TlsKey,
    TlsKeyPassword,
    TlsModeText,
    TriggerMs,
    Workers,
)
from cli.preflight import Listen
from cli.preservation import LimitS, PreservationOptions, Share
from pipelines.backup.marker import refuse_unfinished_restore
from runtime.children import SUPERVISED
from runtime.logs import configure
from runtime.machine import guard_data
from runtime.process import run_to_end
from runtime.secrets import drop_secrets
from security.oidc_settings import ROLE_CLAIM
from security.quotas import parse as parse_quotas
from security.tls_config import TlsOptions

if TYPE_CHECKING:
    from runtime.supervisor import Child

app = typer.Typer(name="routelake", **usage.TEXT)
app.add_typer(admin, name="admin")

_HTTP_PORT = 8080
_REMOTING_PORT = 9876
_HTTP = f"127.0.0.1:{_HTTP_PORT}"
_REMOTING = f"127.0.0.1:{_REMOTING_PORT}"
_FRAME_LIMIT_MIB = 64


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


@app.command()
def serve(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    http: Http = _HTTP,
    remoting: Remoting = _REMOTING,
    config: Config = None,
    allow_config_update: AllowConfigUpdate = False,
    reads: ReadsFrom = Reads.HEAD,
    frame_limit_mib: FrameLimitMib = _FRAME_LIMIT_MIB,
    self_preservation: Share = "off",
    self_preservation_limit_s: LimitS = 3_600.0,
    auth: AuthFile = None,
    auth_mode: Mode = None,
    auth_admin_plaintext: AdminPlaintext = False,
    auth_require_tls: RequireTls = False,
    insecure: Insecure = False,
    quota: Quota = None,
    oidc_issuer: OidcIssuer = "",
    oidc_audience: OidcAudience = "",
    oidc_role_claim: OidcRoleClaim = ROLE_CLAIM,
    trigger_ms: TriggerMs = 1_000,
    shards: Shards = 2,
    history_retention_days: RetentionDays = 30,
    liveness_interval_s: LivenessS = 10.0,
    log_retention_hours: LogRetentionH = 24.0,
    driver_memory: DriverMemory = "1g",
    fold_niceness: FoldNiceness = 5,
    gateway_id: GatewayId = "",
    workers: Workers = 1,
    tls_config: TlsConfig = None,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_key_password: TlsKeyPassword = "",
    tls_client_ca: TlsClientCa = "",
    tls_client_auth: TlsClientAuth = "",
    tls_mode: TlsModeText = "",
) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    configure("serve")
    tls = Encryption(
        tls_config,
        TlsOptions(tls_cert, tls_key, tls_key_password, tls_client_ca, tls_client_auth, tls_mode),
    )
    listen = listening(context, http, remoting, config)
    who = AuthOptions(
        auth,
        auth_mode,
        auth_admin_plaintext,
        auth_require_tls,
        insecure,
        oidc_issuer,
        oidc_audience,
        oidc_role_claim,
    )
    preservation = PreservationOptions(self_preservation, self_preservation_limit_s)
    _judge(data_dir, log, listen, config, frame_limit_mib, who, tls, preservation, supervised=True)
    parse_quotas(quota or ())
    _judge_fold(data_dir, shards, driver_memory)
    from runtime.supervisor import Child

    common = ["--data-dir", str(data_dir), "--data-mode", data_mode, "--log", log_url(data_dir, log)]
    gateway_options = [
        *_gateway_options(listen, frame_limit_mib, config, allow_config_update, reads, who),
        *preservation.arguments,
        *tls.arguments,
        *_again_each("--quota", quota),
    ]
    fold_options = [
        *("--trigger-ms", str(trigger_ms)),
        *("--shards", str(shards)),
        *("--history-retention-days", str(history_retention_days)),
        *("--liveness-interval-s", str(liveness_interval_s)),
        *("--log-retention-hours", str(log_retention_hours)),
        *("--driver-memory", driver_memory),
        *("--fold-niceness", str(fold_niceness)),
    ]
    children = [
        *_gateways(workers, gateway_id or default_gateway_id(listen[1]), [*common, *gateway_options]),
        Child("fold", _again("fold", *common, *fold_options)),
    ]
    raise typer.Exit(_supervise(children, data_dir, data_mode, listen, reads, tls))


@app.command()
def gateway(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    http: Http = _HTTP,
    remoting: Remoting = _REMOTING,
    config: Config = None,
    allow_config_update: AllowConfigUpdate = False,
    reads: ReadsFrom = Reads.HEAD,
    frame_limit_mib: FrameLimitMib = _FRAME_LIMIT_MIB,
    self_preservation: Share = "off",
    self_preservation_limit_s: LimitS = 3_600.0,
    auth: AuthFile = None,
    auth_mode: Mode = None,
    auth_admin_plaintext: AdminPlaintext = False,
    auth_require_tls: RequireTls = False,
    insecure: Insecure = False,
    quota: Quota = None,
    oidc_issuer: OidcIssuer = "",
    oidc_audience: OidcAudience = "",
    oidc_role_claim: OidcRoleClaim = ROLE_CLAIM,
    gateway_id: GatewayId = "",
    workers: Workers = 1,
    tls_config: TlsConfig = None,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_key_password: TlsKeyPassword = "",
    tls_client_ca: TlsClientCa = "",
    tls_client_auth: TlsClientAuth = "",
    tls_mode: TlsModeText = "",
    reuse_port: Annotated[bool, typer.Option("--reuse-port", hidden=True)] = False,
) -> None:
    """Run gateways alone: they answer from the tables and write to the event log."""
    configure("serve" if workers > 1 else "gateway")
    tls = Encryption(
        tls_config,
        TlsOptions(tls_cert, tls_key, tls_key_password, tls_client_ca, tls_client_auth, tls_mode),
    )
    listen = listening(context, http, remoting, config)
    who = AuthOptions(
        auth,
        auth_mode,
        auth_admin_plaintext,
        auth_require_tls,
        insecure,
        oidc_issuer,
        oidc_audience,
        oidc_role_claim,
    )
    preservation = PreservationOptions(self_preservation, self_preservation_limit_s)
    quotas = parse_quotas(quota or ())
    if not reuse_port:
        _judge(data_dir, log, listen, config, frame_limit_mib, who, tls, preservation, supervised=workers > 1)
    if workers > 1:
        options = [
            *("--data-dir", str(data_dir), "--data-mode", data_mode, "--log", log_url(data_dir, log)),
            *_gateway_options(listen, frame_limit_mib, config, allow_config_update, reads, who),
            *preservation.arguments,
            *tls.arguments,
            *_again_each("--quota", quota),
        ]
        children = _gateways(workers, gateway_id or default_gateway_id(listen[1]), options)
        raise typer.Exit(_supervise(children, data_dir, data_mode, listen, reads, tls))
    from api.view.no_pandas import keep_pandas_out

    keep_pandas_out()
    from api.gateway import GatewaySettings
    from api.http.settings import from_environment
    from api.main import run_gateway
    from api.settings.namesrv import NamesrvProperties, read
    from api.settings.start import gateway_settings, remoting_settings

    properties = NamesrvProperties() if config is None else read(config)
    for warning in properties.warnings:
        structlog.get_logger("routelake.gateway").warning(warning)
    bounds = remoting_settings(properties, frame_limit_mib, reuse_port=reuse_port)
    _make(data_dir, data_mode)
    settings = GatewaySettings(
        gateway_id=gateway_id or default_gateway_id(listen[1]),
        lake_dir=(data_dir / "lake").resolve(),
        allow_config_update=allow_config_update,
        self_preservation_percent=preservation.percent(),
        self_preservation_limit_s=self_preservation_limit_s,
        reads=reads,
    )
    raise typer.Exit(
        run_gateway(
            gateway_settings(settings, properties, bounds, listen[1]),
            log_url(data_dir, log),
            http=listen[0],
            remoting=listen[1],
            remoting_settings=bounds,
            http_settings=from_environment(os.environ),
            policy=who.policy(),
            accounts=who.accounts(),
            tls_settings=tls.settings(),
            quotas=quotas,
        )
    )


@app.command()
def fold(
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    trigger_ms: TriggerMs = 1_000,
    shards: Shards = 2,
    history_retention_days: RetentionDays = 30,
    liveness_interval_s: LivenessS = 10.0,
    log_retention_hours: LogRetentionH = 24.0,
    driver_memory: DriverMemory = "1g",
    fold_niceness: FoldNiceness = 5,
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    configure("fold")
    drop_secrets()
    preflight.check_data_dir(data_dir)
    preflight.check_log(log, data_dir)
    _judge_fold(data_dir, shards, driver_memory)
    _make(data_dir, data_mode)
    from pipelines.job import FoldSettings
    from pipelines.main import run_fold

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
        niceness=fold_niceness,
    )
    raise typer.Exit(run_fold(settings))


def default_gateway_id(remoting: Listen) -> str:
    """Host name and port: different for every gateway of a log."""
    return f"{socket.gethostname()}:{remoting.port}"


def _judge(
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


def _judge_fold(data_dir: Path, shards: int, driver_memory: str) -> None:
    """Refuse what a fold cannot start with. Raises SetupError."""
    preflight.check_shards(shards)
    preflight.check_driver_memory(driver_memory)
    preflight.check_localhost()
    preflight.check_lake(data_dir, fold=True)


def _gateway_options(
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


def _again_each(option: str, values: list[str] | None) -> list[str]:
    return [part for value in values or () for part in (option, value)]


def _again(*arguments: str) -> list[str]:
    """Another command of this program, in a process of its own."""
    return [sys.executable, "-m", "cli.main", *arguments]


def _gateways(workers: int, gateway_id: str, options: list[str]) -> list[Child]:
    """The gateway processes; several share their ports, each under an id of its own."""
    from runtime.supervisor import Child

    if workers == 1:
        return [Child("gateway", _again("gateway", *options, "--gateway-id", gateway_id), has_secrets=True)]
    return [
        Child(
            f"gateway-{number}",
            _again("gateway", *options, "--workers", "1", "--reuse-port", "--gateway-id", f"{gateway_id}/{number}"),
            has_secrets=True,
        )
        for number in range(1, workers + 1)
    ]


def _supervise(
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
    _make(data_dir, data_mode)
    supervisor = Supervisor(
        children,
        # Who asks for the tables alone waits for Spark.
        ready_url=f"{scheme}://{http.local}/readyz{'?strict' if reads is Reads.COMMITTED else ''}",
        ready_line=f"routelake is ready: NameServer on {remoting}, HTTP on {scheme}://{http}, data in {data_dir}",
    )
    return supervisor.run()


def _make(data_dir: Path, data_mode: str) -> None:
    """Make the data directory. Raises SetupError when it cannot be written, or a restore into it was cut off."""
    refuse_unfinished_restore(data_dir)
    guard_data(data_dir, data_mode)


developer.register(app)
backup.register(app)
doctor.register(app)
broker_cli.register(app)
history.register(app)
kv_import.register(app)
route_cli.register(app)
spark_sql.register(app)
sql.register(app)
usage.register(app)


def main() -> None:
    """Entry point: errors raised on purpose become one line and an exit code."""
    raise SystemExit(usage.run(app))


if __name__ == "__main__":
    run_to_end(main)

# SPDX-License-Identifier: Apache-2.0
"""`routelake serve`: gateways and the fold."""

from __future__ import annotations

from pathlib import Path

import typer

from api.settings.gateway import Reads
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
from cli.fold import judge_fold
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
from cli.preservation import LimitS, PreservationOptions, Share
from cli.starting import FRAME_LIMIT_MIB, HTTP, REMOTING, default_gateway_id, judge, listening, log_url
from cli.supervised import again, again_each, gateway_options, gateways, supervise
from runtime.logs import configure
from security.oidc_settings import ROLE_CLAIM
from security.quotas import parse as parse_quotas
from security.tls_config import TlsOptions


def serve(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    http: Http = HTTP,
    remoting: Remoting = REMOTING,
    config: Config = None,
    allow_config_update: AllowConfigUpdate = False,
    reads: ReadsFrom = Reads.HEAD,
    frame_limit_mib: FrameLimitMib = FRAME_LIMIT_MIB,
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
    judge(data_dir, log, listen, config, frame_limit_mib, who, tls, preservation, supervised=True)
    parse_quotas(quota or ())
    judge_fold(data_dir, shards, driver_memory)
    from runtime.supervisor import Child

    common = ["--data-dir", str(data_dir), "--data-mode", data_mode, "--log", log_url(data_dir, log)]
    to_gateways = [
        *gateway_options(listen, frame_limit_mib, config, allow_config_update, reads, who),
        *preservation.arguments,
        *tls.arguments,
        *again_each("--quota", quota),
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
        *gateways(workers, gateway_id or default_gateway_id(listen[1]), [*common, *to_gateways]),
        Child("fold", again("fold", *common, *fold_options)),
    ]
    raise typer.Exit(supervise(children, data_dir, data_mode, listen, reads, tls))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)

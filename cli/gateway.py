# SPDX-License-Identifier: Apache-2.0
"""`routelake gateway`: gateways alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import structlog
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
from cli.options import (
    AllowConfigUpdate,
    Config,
    DataDir,
    DataMode,
    FrameLimitMib,
    GatewayId,
    Http,
    LogUrl,
    Quota,
    ReadsFrom,
    Remoting,
    TlsCert,
    TlsClientAuth,
    TlsClientCa,
    TlsConfig,
    TlsKey,
    TlsKeyPassword,
    TlsModeText,
    Workers,
)
from cli.preservation import LimitS, PreservationOptions, Share
from cli.starting import FRAME_LIMIT_MIB, HTTP, REMOTING, default_gateway_id, judge, listening, log_url, make
from cli.supervised import again_each, gateway_options, gateways, supervise
from runtime.logs import configure
from security.oidc_settings import ROLE_CLAIM
from security.quotas import parse as parse_quotas
from security.tls_config import TlsOptions


def gateway(
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
        judge(data_dir, log, listen, config, frame_limit_mib, who, tls, preservation, supervised=workers > 1)
    if workers > 1:
        options = [
            *("--data-dir", str(data_dir), "--data-mode", data_mode, "--log", log_url(data_dir, log)),
            *gateway_options(listen, frame_limit_mib, config, allow_config_update, reads, who),
            *preservation.arguments,
            *tls.arguments,
            *again_each("--quota", quota),
        ]
        children = gateways(workers, gateway_id or default_gateway_id(listen[1]), options)
        raise typer.Exit(supervise(children, data_dir, data_mode, listen, reads, tls))
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
    make(data_dir, data_mode)
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(gateway)

# SPDX-License-Identifier: Apache-2.0
"""The options of a gateway, which `serve` and `gateway` have alike."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from api.settings.gateway import Reads
from cli import preflight
from cli.auth_options import (
    AdminPlaintext,
    AdminSignature,
    AuthFile,
    AuthOptions,
    Insecure,
    Mode,
    OidcAudience,
    OidcIssuer,
    OidcRoleClaim,
    RequireTls,
)
from cli.data_options import DataOptions
from cli.encryption import Encryption
from cli.exposure import check_exposed, check_proxied
from cli.groups import Options
from cli.options import (
    AllowConfigUpdate,
    Config,
    FrameLimitMib,
    GatewayId,
    Http,
    MaxClockLeapS,
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
from cli.preflight import Listen
from cli.preservation import LimitS, PreservationOptions, Share
from runtime.children import SUPERVISED, wait_for_orphans
from security.oidc_settings import ROLE_CLAIM
from security.quotas import Quotas
from security.quotas import parse as parse_quotas
from security.tls_config import TlsOptions

_HTTP_PORT: Final = 8080
_REMOTING_PORT: Final = 9876

_ADDRESSES: Final[Options] = (
    ("http", Http, f"127.0.0.1:{_HTTP_PORT}"),
    ("remoting", Remoting, f"127.0.0.1:{_REMOTING_PORT}"),
)
_READING: Final[Options] = (
    ("config", Config, None),
    ("allow_config_update", AllowConfigUpdate, False),
    ("reads", ReadsFrom, Reads.LIVE),
    ("frame_limit_mib", FrameLimitMib, 64),
    ("max_clock_leap_s", MaxClockLeapS, 3_600.0),
)
_PRESERVATION: Final[Options] = (("self_preservation", Share, "off"), ("self_preservation_limit_s", LimitS, 3_600.0))
_WHO: Final[Options] = (
    ("auth", AuthFile, None),
    ("auth_mode", Mode, None),
    ("auth_admin_plaintext", AdminPlaintext, False),
    ("auth_require_tls", RequireTls, None),
    ("insecure", Insecure, False),
    ("oidc_issuer", OidcIssuer, ""),
    ("oidc_audience", OidcAudience, ""),
    ("oidc_role_claim", OidcRoleClaim, ROLE_CLAIM),
    ("auth_admin_signature", AdminSignature, False),
)
_TLS: Final[Options] = (
    ("tls_config", TlsConfig, None),
    ("tls_cert", TlsCert, ""),
    ("tls_key", TlsKey, ""),
    ("tls_key_password", TlsKeyPassword, ""),
    ("tls_client_ca", TlsClientCa, ""),
    ("tls_client_auth", TlsClientAuth, ""),
    ("tls_mode", TlsModeText, ""),
)
_REST: Final[Options] = (
    ("quota", Quota, None),
    ("gateway_id", GatewayId, ""),
    ("workers", Workers, 1),
)
OPTIONS: Final[Options] = (*_ADDRESSES, *_READING, *_PRESERVATION, *_WHO, *_REST, *_TLS)


class GatewayOptions(NamedTuple):
    """What was said of the gateways of a command."""

    http: str
    remoting: str
    config: Path | None
    allow_config_update: bool
    reads: Reads
    frame_limit_mib: int
    max_clock_leap_s: float
    preservation: PreservationOptions
    who: AuthOptions
    tls: Encryption
    quota: list[str] | None
    gateway_id: str
    workers: int

    @classmethod
    def of(cls, values: dict[str, Any]) -> GatewayOptions:
        """From what typer found; takes it out of the values."""

        def taken(options: Options) -> list[Any]:
            return [values.pop(name) for name, _, _ in options]

        http, remoting = taken(_ADDRESSES)
        config, allow_config_update, reads, frame_limit_mib, max_clock_leap_s = taken(_READING)
        quota, gateway_id, workers = taken(_REST)
        tls_config, *rest_of_tls = taken(_TLS)
        return cls(
            http,
            remoting,
            config,
            allow_config_update,
            reads,
            frame_limit_mib,
            max_clock_leap_s,
            PreservationOptions(*taken(_PRESERVATION)),
            AuthOptions(*taken(_WHO)),
            Encryption(tls_config, TlsOptions(*rest_of_tls)),
            quota,
            gateway_id,
            workers,
        )

    def listening(self, context: typer.Context) -> tuple[Listen, Listen]:
        """Where HTTP and the NameServer listen; the latter by option or variable, else file, else default.

        Raises:
            SetupError: One cannot be read.
        """
        listen = preflight.listen_address(self.remoting, "--remoting", _REMOTING_PORT)
        source = context.get_parameter_source("remoting")
        if self.config is not None and (source is None or source.name in ("DEFAULT", "DEFAULT_MAP")):
            from api.settings.namesrv import read
            from api.settings.start import listen_address

            listen = Listen(*listen_address(read(self.config), listen))
        return preflight.listen_address(self.http, "--http", _HTTP_PORT), listen

    def judge(self, data: DataOptions, listen: tuple[Listen, Listen], *, supervised: bool) -> None:
        """Refuse what a gateway cannot start with, before anything is made; say whom it lets in. Raises SetupError."""
        http = preflight.check_gateway(self.config, self.frame_limit_mib, os.environ)
        self.preservation.percent()
        self.quotas()
        self.who.accounts()
        self.tls.check()
        preflight.check_data_dir(data.data_dir)
        preflight.check_log(data.log, data.data_dir)
        preflight.check_lake(data.lake_place, fold=False)
        wait_for_orphans(data.data_dir, lambda text: print(f"routelake: {text}", file=sys.stderr, flush=True))
        preflight.check_listening(*listen, supervised=supervised)
        asks = self.who.enforces or self.tls.knows_clients
        check_exposed(
            *listen,
            remoting_asks=asks,
            http_asks=asks or bool(http.tokens),
            insecure=self.who.insecure,
        )
        check_proxied(http, asks=self.who.enforces)
        exposure = None if asks else preflight.exposure(*listen)
        if exposure is not None and SUPERVISED not in os.environ:
            print(f"routelake: {exposure}", file=sys.stderr)

    def quotas(self) -> Quotas:
        """How much one peer may do. Raises SetupError."""
        return parse_quotas(self.quota or ())

    def id(self, listen: tuple[Listen, Listen]) -> str:
        """Its name in the history; by default another for every gateway of a log."""
        return self.gateway_id or f"{socket.gethostname()}:{listen[1].port}"

    def address(self, remoting: Listen) -> str:
        """Where clients reach the NameServer, IP:PORT; empty where --gateway-id names an address of its own.

        A host name would not do: rocketmq-client-go takes IP addresses alone.
        """
        from api.gateway.live_gateways import address_of_id, machine_address, resolved

        own = f"{socket.gethostname()}:{remoting.port}"
        named = address_of_id(self.gateway_id)
        if named is not None and named != own:
            return ""
        host = machine_address() if remoting.is_everywhere else resolved(remoting.host)
        return str(Listen(host or "127.0.0.1", remoting.port))

    def arguments(self, listen: tuple[Listen, Listen]) -> list[str]:
        """What every gateway process of a supervisor is told alike."""
        http, remoting = listen
        return [
            *("--http", str(http), "--remoting", str(remoting), "--frame-limit-mib", str(self.frame_limit_mib)),
            *("--reads", self.reads, "--max-clock-leap-s", str(self.max_clock_leap_s)),
            *(["--config", str(self.config)] if self.config else []),
            *(["--allow-config-update"] if self.allow_config_update else []),
            *self.who.arguments(),
            *self.preservation.arguments,
            *self.tls.arguments,
            *(part for value in self.quota or () for part in ("--quota", value)),
        ]

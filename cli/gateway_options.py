# SPDX-License-Identifier: Apache-2.0
"""Options of a gateway, for `serve` and `gateway`."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from api.settings.gateway import Reads
from api.settings.keys import parse_percent
from cli import preflight
from cli.data_options import DataOptions
from cli.options import Options, option
from cli.output import warn
from cli.preflight import Listen
from runtime.children import SUPERVISED, wait_for_orphans
from runtime.secrets import keep_from_children
from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.policy import ROLE_CLAIM, AuthMode, OidcSettings, Policy, is_safe
from security.quotas import Quotas
from security.quotas import parse as parse_quotas
from security.tls_config import TlsOptions, TlsSettings

if TYPE_CHECKING:
    from security.accounts_file import AccountsFile

_HTTP: Final = "127.0.0.1:8080"
_HTTP_PORT: Final = 8080
_REMOTING: Final = "127.0.0.1:9876"
_REMOTING_PORT: Final = 9876

Http = Annotated[
    str,
    option(
        "--http",
        metavar="HOST:PORT",
        help="Address where HTTP listens. 0.0.0.0:PORT and :PORT mean every interface.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class AuthOptions(Options):
    """The options of accounts and permissions."""

    panel: ClassVar[str] = "Accounts"

    auth: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="Accounts, in the layout of RocketMQ's plain_acl.yml; read again when it changes. "
            "See docs/how-to/operate/accounts.md.",
        ),
    ] = None
    auth_mode: Annotated[
        AuthMode | None,
        option(
            help="Action on a request without permission. off: no check; audit: accept and report; enforce-writes: "
            "refuse writes; enforce: refuse. Default: enforce with --auth, else off.",
            show_default=False,
        ),
    ] = None
    auth_admin_plaintext: Annotated[
        bool,
        option(
            help="Accept an admin's signature without TLS. A process that reads one can delete every route with it."
        ),
    ] = False
    auth_require_tls: Annotated[
        bool | None,
        option(
            "--auth-require-tls/--no-auth-require-tls",
            help="Refuse every key and token without TLS, those of readers and brokers included. "
            "Default: with --auth-mode enforce and a certificate, unless --auth-admin-plaintext is given.",
            show_default=False,
        ),
    ] = None
    auth_admin_signature: Annotated[
        bool,
        option(
            help="Accept an admin's signature over TLS without the account's certificate or address. A broker that "
            "receives a request of this admin can delete every route with the signature."
        ),
    ] = False
    oidc_issuer: Annotated[
        str, option(metavar="URL", help="OpenID Connect issuer. HTTP also accepts its JWTs. Needs --auth.")
    ] = ""
    oidc_audience: Annotated[str, option(help="Required `aud` of JWTs. JWTs with another audience are refused.")] = ""
    oidc_role_claim: Annotated[
        str,
        option(
            metavar="NAME",
            help="Claim with the role: routelake:reader, routelake:broker or routelake:admin. Dots are for nested "
            "claims.",
        ),
    ] = ROLE_CLAIM
    insecure: Annotated[bool, option(help="Listen on non-loopback addresses without authentication.")] = False

    @property
    def chosen(self) -> AuthMode:
        """The mode that is set, or the default for the other options."""
        return self.auth_mode or (AuthMode.OFF if self.auth is None else AuthMode.ENFORCE)

    @property
    def enforces(self) -> bool:
        """True if every change needs an account."""
        return self.chosen in (AuthMode.ENFORCE, AuthMode.ENFORCE_WRITES)

    def policy(self, *, has_tls: bool = False) -> Policy:
        """The policy of the gateway.

        Args:
            has_tls: Whether the gateway has a certificate.
        """
        require_tls = self.auth_require_tls
        if require_tls is None:
            require_tls = has_tls and self.chosen is AuthMode.ENFORCE and not self.auth_admin_plaintext
        oidc = OidcSettings(self.oidc_issuer, self.oidc_audience, self.oidc_role_claim) if self.oidc_issuer else None
        return Policy(self.chosen, self.auth_admin_plaintext, require_tls, oidc, self.auth_admin_signature)

    def accounts(self) -> AccountsFile | None:
        """Read the file of accounts.

        Raises:
            SetupError: The file cannot be used, or the mode needs accounts and there is no file.
        """
        if self.auth_require_tls and self.auth_admin_plaintext:
            raise SetupError(
                "--auth-require-tls and --auth-admin-plaintext cannot be used together. Remove one of them."
            )
        self._check_oidc()
        if self.auth is None:
            if self.chosen is not AuthMode.OFF:
                raise SetupError(
                    f"--auth-mode {self.chosen} needs accounts. Set --auth FILE (docs/how-to/operate/accounts.md)."
                )
            return None
        from security.accounts_file import AccountsFile

        return AccountsFile(self.auth)

    def _check_oidc(self) -> None:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise SetupError("--oidc-issuer and --oidc-audience must be set together: set both, or neither.")
        if not self.oidc_issuer:
            return
        if self.auth is None:
            raise SetupError("--oidc-issuer needs accounts for the clients of port 9876. Set --auth FILE.")
        if not is_safe(self.oidc_issuer):
            raise SetupError(
                f"--oidc-issuer {self.oidc_issuer}: expected the https address that is `iss` of its tokens."
            )


@dataclass(frozen=True, kw_only=True)
class Encryption(Options, TlsOptions):
    """The options of TLS, for both ports."""

    panel: ClassVar[str] = "TLS"
    prefix: ClassVar[str] = "tls_"

    config: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="A RocketMQ tls.properties, for both ports. Options and variables given explicitly win over it.",
        ),
    ] = None
    cert: Annotated[str, option(metavar="FILE", help="PEM file of the server's certificate and its chain.")] = ""
    key: Annotated[str, option(metavar="FILE", help="PEM file of the certificate's key.")] = ""
    key_password: Annotated[str, option(metavar="REFERENCE", help="Key's password as file:PATH or env:NAME.")] = ""
    client_ca: Annotated[
        str,
        option(
            metavar="FILE", help="PEM file of the CAs of client certificates. If set, clients must show a certificate."
        ),
    ] = ""
    client_auth: Annotated[str, option(metavar="RULE", help="Client certificates: none, optional, require.")] = ""
    mode: Annotated[
        str,
        option(
            metavar="MODE",
            help="Plain-text connections. permissive: accepted (the default, as in RocketMQ); enforcing: refused; "
            "disabled: no TLS.",
        ),
    ] = ""

    def settings(self) -> TlsSettings | None:
        """Return the TLS settings. None: nothing is encrypted. Raises SetupError."""
        from api.settings.namesrv import read_tls

        settings = read_tls(self.config, self)
        if settings is not None:
            keep_from_children(settings.key_password)
        return settings

    def check(self) -> None:
        """Read the certificate and its key, and try to use them.

        Raises:
            SetupError: Certificate or key cannot be used.
        """
        settings = self.settings()
        if settings is not None:
            from security.tls_context import build

            build(settings)

    @property
    def is_enforced(self) -> bool:
        """True if plain connections are refused."""
        settings = self.settings()
        return settings is not None and settings.mode is TlsMode.ENFORCING

    @property
    def knows_clients(self) -> bool:
        """True if every client must present a certificate of a trusted authority."""
        settings = self.settings()
        return (
            settings is not None and settings.mode is TlsMode.ENFORCING and settings.client_auth is ClientAuth.REQUIRE
        )


@dataclass(frozen=True, kw_only=True)
class GatewayOptions(Options):
    """The options of the gateways of a command."""

    panel: ClassVar[str] = "Gateway"

    http: Http = _HTTP
    remoting: Annotated[
        str | None,
        option(
            metavar="HOST:PORT",
            help="Address where the NameServer listens. 0.0.0.0:PORT and :PORT mean every interface. "
            f"Default: that of --config, else {_REMOTING}.",
            show_default=False,
        ),
    ] = None
    config: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="A RocketMQ namesrv.properties. Options and variables given explicitly win over it.",
        ),
    ] = None
    allow_config_update: Annotated[
        bool,
        option(help="Let mqadmin updateNamesrvConfig change the live switches, for all gateways of the event log."),
    ] = False
    reads: Annotated[
        Reads,
        option(
            help="Source of answers. live: the end of the event log; committed: the latest epoch of the tables.",
        ),
    ] = Reads.LIVE
    max_clock_leap_s: Annotated[
        float,
        option(
            min=0,
            max=31_536_000,
            help="Largest accepted forward jump of this machine's clock, in seconds. After a larger one, writes to a "
            "SQLite event log are refused. 0: any jump is accepted.",
        ),
    ] = 3_600.0
    self_preservation: Annotated[
        str,
        option(
            metavar="SHARE",
            help="Percentage of live brokers, for example 15%. If more miss their heartbeats at once, no broker "
            "expires until they are back, for at most an hour. off: brokers always expire, as in RocketMQ.",
        ),
    ] = "off"
    quota: Annotated[
        list[str] | None,
        option(
            metavar="NAME=VALUE",
            help="Limit of one peer: connections=500, brokers=off, new-names-per-min=600:10000 (rate:burst). "
            "Repeat the option, or separate limits with commas. See docs/reference/settings.md.",
        ),
    ] = None
    gateway_id: Annotated[
        str,
        option(
            help="Unique name of this gateway in the history. Use HOST:PORT to list this address at /rocketmq/nsaddr."
        ),
    ] = ""
    workers: Annotated[
        int,
        option(
            min=1,
            max=64,
            help="Number of gateway processes on the same ports (SO_REUSEPORT); the kernel spreads connections.",
        ),
    ] = 1
    auth: AuthOptions = field(default_factory=AuthOptions)
    tls: Encryption = field(default_factory=Encryption)

    reuse_port: bool = False
    """Whether several workers listen on the same ports. The supervisor of the workers sets it."""
    worker_socket: Path | None = None
    """Socket of this worker. The supervisor of several workers sets it."""

    def listening(self) -> tuple[Listen, Listen]:
        """Return the addresses of HTTP and the NameServer.

        The NameServer's address comes from the option or its variable, or else from the file, or else from the default.

        Raises:
            SetupError: An address is not valid.
        """
        listen = preflight.listen_address(self.remoting or _REMOTING, "--remoting", _REMOTING_PORT)
        if self.remoting is None and self.config is not None:
            from api.settings.namesrv import listen_address, read

            listen = Listen(*listen_address(read(self.config), listen))
        return preflight.listen_address(self.http, "--http", _HTTP_PORT), listen

    def validate(self, data: DataOptions, listen: tuple[Listen, Listen], *, supervised: bool) -> None:
        """Check the options before anything is created, and warn of open ports. Raises SetupError."""
        http = preflight.check_gateway(self.config, os.environ)
        self.percent()
        self.quotas()
        self.auth.accounts()
        self.tls.check()
        preflight.check_data_dir(data.data_dir)
        preflight.check_log(data.log, data.data_dir)
        preflight.check_lake(data.lake_place, fold=False)
        wait_for_orphans(data.data_dir, warn)
        preflight.check_listening(*listen, supervised=supervised)
        asks = self.auth.enforces or self.tls.knows_clients
        preflight.check_exposed(
            *listen,
            remoting_asks=asks,
            http_asks=asks or bool(http.tokens),
            insecure=self.auth.insecure,
            unenforced=self.auth.chosen if self.auth.auth is not None and not self.auth.enforces else "",
        )
        preflight.check_proxied(http, asks=self.auth.enforces)
        exposure = None if asks else preflight.exposure(*listen)
        if exposure is not None and SUPERVISED not in os.environ:
            warn(exposure)

    def percent(self) -> int:
        """The share of --self-preservation, in percent. 0: off.

        Raises:
            SetupError: The value is not a share.
        """
        found = parse_percent(self.self_preservation.strip())
        if found is None:
            raise SetupError(
                f"--self-preservation {self.self_preservation!r}: expected a share, for example 15%, or off."
            )
        return found

    def quotas(self) -> Quotas:
        """The limits of one peer. Raises SetupError."""
        return parse_quotas(self.quota or ())

    def id(self, listen: tuple[Listen, Listen]) -> str:
        """Return the gateway's name in the history. By default it is different for every gateway of a log."""
        return self.gateway_id or f"{socket.gethostname()}:{listen[1].port}"

    def address(self, remoting: Listen) -> str:
        """Return the address at which clients reach the NameServer, as IP:PORT. Empty: --gateway-id has an address.

        The address must not have a host name, because rocketmq-client-go accepts only IP addresses.
        """
        from api.gateway.live_gateways import address_of_id, machine_address, resolved

        own = f"{socket.gethostname()}:{remoting.port}"
        named = address_of_id(self.gateway_id)
        if named is not None and named != own:
            return ""
        host = machine_address() if remoting.is_everywhere else resolved(remoting.host)
        return str(Listen(host or "127.0.0.1", remoting.port))

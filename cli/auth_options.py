# SPDX-License-Identifier: Apache-2.0
"""Options that say who may what. Each is an environment variable, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cli.options import option
from schemas.errors import SetupError
from security.oidc_settings import ROLE_CLAIM, OidcSettings, is_safe
from security.policy import AuthMode

if TYPE_CHECKING:
    from security.accounts_file import AccountsFile
    from security.policy import Policy

AuthFile = Annotated[
    Path | None,
    option(
        "--auth",
        metavar="FILE",
        help="Accounts, in the layout of RocketMQ's plain_acl.yml; read again when it changes. "
        "See docs/explanation/security.md.",
    ),
]
Mode = Annotated[
    AuthMode | None,
    option(
        "--auth-mode",
        help="off; log: refuse nobody, but say who would be; enforce-writes: reads are free; enforce. "
        "Default: enforce with --auth, else off.",
        show_default=False,
    ),
]
AdminPlaintext = Annotated[
    bool,
    option(
        "--auth-admin-plaintext",
        help="Take an admin's signature without TLS, too: whoever hears one can delete every route with it.",
    ),
]
AdminSignature = Annotated[
    bool,
    option(
        "--auth-admin-signature",
        help="Take an admin's signature over TLS without the account's certificate or address, too: a broker that "
        "the same admin has asked something can delete every route with it.",
    ),
]
RequireTls = Annotated[
    bool | None,
    option(
        "--auth-require-tls/--no-auth-require-tls",
        help="Take no key and no token without TLS, those of readers and brokers included. "
        "Default: with --auth-mode enforce and a certificate, unless --auth-admin-plaintext is given.",
        show_default=False,
    ),
]
OidcIssuer = Annotated[
    str,
    option(
        "--oidc-issuer", metavar="URL", help="Over HTTP, take JWTs of this OpenID Connect issuer, too; needs --auth."
    ),
]
OidcAudience = Annotated[str, option("--oidc-audience", help="`aud` of the JWTs that are meant for us.")]
OidcRoleClaim = Annotated[
    str,
    option(
        "--oidc-role-claim",
        help="The claim that names routelake:reader, routelake:broker or routelake:admin; dots lead into objects.",
    ),
]
Insecure = Annotated[bool, option("--insecure", help="Listen beyond this machine though nobody is asked who they are.")]


class AuthOptions(NamedTuple):
    """What was said of it."""

    file: Path | None
    mode: AuthMode | None
    admin_plaintext: bool
    require_tls: bool | None
    insecure: bool
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_role_claim: str = ROLE_CLAIM
    admin_signature: bool = False

    @property
    def chosen(self) -> AuthMode:
        """The mode that is meant."""
        return self.mode or (AuthMode.OFF if self.file is None else AuthMode.ENFORCE)

    @property
    def enforces(self) -> bool:
        """Whether nobody changes anything without an account."""
        return self.chosen in (AuthMode.ENFORCE, AuthMode.ENFORCE_WRITES)

    def policy(self, *, has_tls: bool = False) -> Policy:
        """For the gateway; `has_tls`: whether it has a certificate."""
        from security.policy import Policy

        require_tls = self.require_tls
        if require_tls is None:
            require_tls = has_tls and self.chosen is AuthMode.ENFORCE and not self.admin_plaintext

        oidc = OidcSettings(self.oidc_issuer, self.oidc_audience, self.oidc_role_claim) if self.oidc_issuer else None
        return Policy(self.chosen, self.admin_plaintext, require_tls, oidc, self.admin_signature)

    def accounts(self) -> AccountsFile | None:
        """Read the file.

        Raises:
            SetupError: It cannot be used, or a mode asks for accounts where there are none.
        """
        if self.require_tls and self.admin_plaintext:
            raise SetupError("--auth-require-tls and --auth-admin-plaintext contradict each other: leave one out.")
        self._check_oidc()
        if self.file is None:
            if self.chosen is not AuthMode.OFF:
                raise SetupError(
                    f"--auth-mode {self.chosen} needs accounts: --auth FILE (docs/explanation/security.md)."
                )
            return None
        from security.accounts_file import AccountsFile

        return AccountsFile(self.file)

    def _check_oidc(self) -> None:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise SetupError("--oidc-issuer and --oidc-audience belong together: a token has to be meant for us.")
        if not self.oidc_issuer:
            return
        if self.file is None:
            raise SetupError("--oidc-issuer needs accounts for those who come over port 9876: --auth FILE.")
        if not is_safe(self.oidc_issuer):
            raise SetupError(f"--oidc-issuer {self.oidc_issuer}: expected an https address, as `iss` of its tokens.")

    def arguments(self) -> list[str]:
        """The same for another process."""
        return [
            *(["--auth", str(self.file)] if self.file else []),
            *(["--auth-mode", self.mode] if self.mode else []),
            *(["--auth-admin-plaintext"] if self.admin_plaintext else []),
            *(["--auth-admin-signature"] if self.admin_signature else []),
            *([] if self.require_tls is None else [f"--{'' if self.require_tls else 'no-'}auth-require-tls"]),
            *(["--insecure"] if self.insecure else []),
            *(["--oidc-issuer", self.oidc_issuer] if self.oidc_issuer else []),
            *(["--oidc-audience", self.oidc_audience] if self.oidc_audience else []),
            *(["--oidc-role-claim", self.oidc_role_claim] if self.oidc_role_claim != ROLE_CLAIM else []),
        ]

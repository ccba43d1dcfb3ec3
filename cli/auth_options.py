# SPDX-License-Identifier: Apache-2.0
"""Options that say who may what. Each is an environment variable, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from schemas.errors import SetupError
from security.policy import AuthMode

if TYPE_CHECKING:
    from security.accounts_file import AccountsFile
    from security.policy import Policy

AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth",
        envvar="ROUTELAKE_AUTH",
        metavar="FILE",
        help="Accounts, in the layout of RocketMQ's plain_acl.yml; read again when it changes. See docs/security.md.",
    ),
]
Mode = Annotated[
    AuthMode | None,
    typer.Option(
        "--auth-mode",
        envvar="ROUTELAKE_AUTH_MODE",
        help="off; log: refuse nobody, but say who would be; enforce-writes: reads are free; enforce. "
        "Default: enforce with --auth, else off.",
        show_default=False,
    ),
]
AdminPlaintext = Annotated[
    bool,
    typer.Option(
        "--auth-admin-plaintext",
        envvar="ROUTELAKE_AUTH_ADMIN_PLAINTEXT",
        help="Take an admin's signature without TLS, too: whoever hears one can delete every route with it.",
    ),
]
RequireTls = Annotated[
    bool,
    typer.Option(
        "--auth-require-tls",
        envvar="ROUTELAKE_AUTH_REQUIRE_TLS",
        help="Take no key and no token without TLS, those of readers and brokers included.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="ROUTELAKE_INSECURE",
        help="Listen beyond this machine though nobody is asked who they are.",
    ),
]


class AuthOptions(NamedTuple):
    """What was said of it."""

    file: Path | None
    mode: AuthMode | None
    admin_plaintext: bool
    require_tls: bool
    insecure: bool

    @property
    def chosen(self) -> AuthMode:
        """The mode that is meant."""
        return self.mode or (AuthMode.OFF if self.file is None else AuthMode.ENFORCE)

    @property
    def enforces(self) -> bool:
        """Whether nobody changes anything without an account."""
        return self.chosen in (AuthMode.ENFORCE, AuthMode.ENFORCE_WRITES)

    def policy(self) -> Policy:
        """For the gateway."""
        from security.policy import Policy

        return Policy(self.chosen, self.admin_plaintext, self.require_tls)

    def accounts(self) -> AccountsFile | None:
        """Read the file.

        Raises:
            SetupError: It cannot be used, or a mode asks for accounts where there are none.
        """
        if self.require_tls and self.admin_plaintext:
            raise SetupError("--auth-require-tls and --auth-admin-plaintext contradict each other: leave one out.")
        if self.file is None:
            if self.chosen is not AuthMode.OFF:
                raise SetupError(f"--auth-mode {self.chosen} needs accounts: --auth FILE (docs/security.md).")
            return None
        from security.accounts_file import AccountsFile

        return AccountsFile(self.file)

    def arguments(self) -> list[str]:
        """The same for another process."""
        return [
            *(["--auth", str(self.file)] if self.file else []),
            *(["--auth-mode", self.mode] if self.mode else []),
            *(["--auth-admin-plaintext"] if self.admin_plaintext else []),
            *(["--auth-require-tls"] if self.require_tls else []),
            *(["--insecure"] if self.insecure else []),
        ]

# SPDX-License-Identifier: Apache-2.0
"""What `serve` and `gateway` are told of TLS, judged before anything starts, and said again to their children."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.secrets import keep_from_children
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsOptions, TlsSettings


@dataclass(frozen=True, slots=True)
class Encryption:
    """The options that begin with --tls."""

    config: Path | None
    options: TlsOptions

    def settings(self) -> TlsSettings | None:
        """None: nothing is encrypted. Raises SetupError."""
        from api.settings.tls import read_tls

        settings = read_tls(self.config, self.options)
        if settings is not None:
            keep_from_children(settings.key_password)
        return settings

    def check(self) -> None:
        """Read the certificate and its key, and try them.

        Raises:
            SetupError: They cannot be used.
        """
        settings = self.settings()
        if settings is not None:
            from security.tls_context import build

            build(settings)

    @property
    def is_enforced(self) -> bool:
        """Whether nothing plain is taken."""
        settings = self.settings()
        return settings is not None and settings.mode is TlsMode.ENFORCING

    @property
    def knows_clients(self) -> bool:
        """Whether nobody is taken without a certificate of an authority that was named."""
        settings = self.settings()
        return (
            settings is not None and settings.mode is TlsMode.ENFORCING and settings.client_auth is ClientAuth.REQUIRE
        )

    @property
    def arguments(self) -> list[str]:
        """The same options, for a child process; the password is a reference."""
        options = self.options
        given = {
            "--tls-config": str(self.config or ""),
            "--tls-cert": options.cert,
            "--tls-key": options.key,
            "--tls-key-password": options.key_password,
            "--tls-client-ca": options.client_ca,
            "--tls-client-auth": options.client_auth,
            "--tls-mode": options.mode,
        }
        return [part for option, value in given.items() if value for part in (option, value)]

# SPDX-License-Identifier: Apache-2.0
"""Options that say how the commands that ask a NameServer encrypt. Each is an environment variable, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cli.credentials import resolve
from cli.options import Options, option
from schemas.errors import SetupError

if TYPE_CHECKING:
    from clients.tls import ClientTls


@dataclass(frozen=True, kw_only=True)
class ClientTlsOptions(Options):
    """The options of TLS towards NameServers and brokers."""

    tls: Annotated[
        bool, option(envvar="ROUTELAKE_CLIENT_TLS", help="Encrypt every connection; each option below implies it.")
    ] = False
    tls_ca: Annotated[
        str,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_CA",
            metavar="FILE",
            help="PEM file of the authorities of servers. Default: the system's.",
        ),
    ] = ""
    tls_cert: Annotated[
        str, option(envvar="ROUTELAKE_CLIENT_TLS_CERT", metavar="FILE", help="PEM file of the certificate to show.")
    ] = ""
    tls_key: Annotated[str, option(envvar="ROUTELAKE_CLIENT_TLS_KEY", metavar="FILE", help="PEM file of its key.")] = ""
    tls_key_password: Annotated[
        str,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_KEY_PASSWORD",
            metavar="REFERENCE",
            help="Place of the key's password: file:PATH or env:NAME.",
        ),
    ] = ""
    tls_insecure: Annotated[
        bool,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_INSECURE", help="Accept any certificate, of any authority and for any host."
        ),
    ] = False

    def client(self) -> ClientTls | None:
        """The settings of a client. None: nothing is encrypted but ``https://``.

        Raises:
            SetupError: A password that is no reference, or cannot be read.
        """
        if not (self.tls or self.tls_ca or self.tls_cert or self.tls_key or self.tls_insecure):
            return None
        from clients.tls import ClientTls

        password = self.tls_key_password
        if password and not password.startswith(("file:", "env:")):
            raise SetupError("--tls-key-password takes a reference, file:PATH or env:NAME: `ps` shows a command line.")
        word = resolve("--tls-key-password", password)
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key, word, self.tls_insecure)

# SPDX-License-Identifier: Apache-2.0
"""Options that say how the commands that ask a NameServer encrypt. Each is an environment variable, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.credentials import resolve
from cli.groups import Options, with_options
from schemas.errors import SetupError

if TYPE_CHECKING:
    from clients.tls import ClientTls

Tls = Annotated[
    bool,
    typer.Option(
        "--tls", envvar="ROUTELAKE_CLIENT_TLS", help="Encrypt every connection; each option below implies it."
    ),
]
Ca = Annotated[
    str,
    typer.Option(
        "--tls-ca",
        envvar="ROUTELAKE_CLIENT_TLS_CA",
        metavar="FILE",
        help="PEM: who signs servers' certificates. Default: the system's.",
    ),
]
Cert = Annotated[
    str,
    typer.Option(
        "--tls-cert", envvar="ROUTELAKE_CLIENT_TLS_CERT", metavar="FILE", help="PEM: the certificate to show."
    ),
]
Key = Annotated[str, typer.Option("--tls-key", envvar="ROUTELAKE_CLIENT_TLS_KEY", metavar="FILE", help="PEM: its key.")]
KeyPassword = Annotated[
    str,
    typer.Option(
        "--tls-key-password",
        envvar="ROUTELAKE_CLIENT_TLS_KEY_PASSWORD",
        metavar="REFERENCE",
        help="Where the key's password is: file:PATH or env:NAME.",
    ),
]
AnyServer = Annotated[
    bool,
    typer.Option(
        "--tls-insecure",
        envvar="ROUTELAKE_CLIENT_TLS_INSECURE",
        help="Take any certificate, whoever signed it and for whichever host.",
    ),
]

OPTIONS: Final[Options] = (
    ("tls", Tls, False),
    ("tls_ca", Ca, ""),
    ("tls_cert", Cert, ""),
    ("tls_key", Key, ""),
    ("tls_key_password", KeyPassword, ""),
    ("tls_insecure", AnyServer, False),
)


def client_tls(values: dict[str, Any]) -> ClientTls | None:
    """What the options say; they are taken out of `values`. None: nothing is encrypted but ``https://``.

    Raises:
        SetupError: A password that is no reference, or cannot be read.
    """
    enabled, ca, cert, key, password, insecure = (values.pop(name) for name, _, _ in OPTIONS)
    if not (enabled or ca or cert or key or insecure):
        return None
    from clients.tls import ClientTls

    if password and not password.startswith(("file:", "env:")):
        raise SetupError("--tls-key-password takes a reference, file:PATH or env:NAME: `ps` shows a command line.")
    return ClientTls(ca, cert, key, resolve("--tls-key-password", password), insecure)


with_tls = with_options("tls", OPTIONS, client_tls)
"""The command with these options in place of its parameter ``tls: ClientTls | None``."""

# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that ask a NameServer: signing keys (or mqadmin's tools.yml), TLS and bearer token."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cli.options import Options, option, variable_of
from runtime.secrets import reference_of, resolve
from schemas.errors import SetupError

if TYPE_CHECKING:
    from clients.credentials import Credentials
    from clients.tls import ClientTls

HttpToken = Annotated[
    str,
    option(
        "--http-token",
        "--token",
        metavar="REFERENCE",
        help="Bearer token for routelake's HTTP as file:PATH or env:NAME. The variable may contain the token itself.",
    ),
]

_TOOLS: Final = Path("conf", "tools.yml")


@dataclass(frozen=True, kw_only=True)
class ClientOptions(Options):
    """The options of the account to sign with, and of TLS towards NameServers and brokers."""

    access_key: Annotated[
        str, option(help="Account to sign requests as. Default: $ROCKETMQ_HOME/conf/tools.yml, if there is one.")
    ] = ""
    secret_key: Annotated[
        str,
        option(
            metavar="REFERENCE",
            help="Account's key as file:PATH or env:NAME. The variable may contain the key itself.",
        ),
    ] = ""
    tls: Annotated[
        bool, option(envvar="ROUTELAKE_CLIENT_TLS", help="Use TLS for every connection. Each option below implies it.")
    ] = False
    tls_ca: Annotated[
        str,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_CA",
            metavar="FILE",
            help="PEM file of the trusted CAs. Default: the system's.",
        ),
    ] = ""
    tls_cert: Annotated[
        str, option(envvar="ROUTELAKE_CLIENT_TLS_CERT", metavar="FILE", help="PEM file of the client certificate.")
    ] = ""
    tls_key: Annotated[str, option(envvar="ROUTELAKE_CLIENT_TLS_KEY", metavar="FILE", help="PEM file of its key.")] = ""
    tls_key_password: Annotated[
        str,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_KEY_PASSWORD",
            metavar="REFERENCE",
            help="Key's password as file:PATH or env:NAME.",
        ),
    ] = ""
    tls_insecure: Annotated[
        bool,
        option(
            envvar="ROUTELAKE_CLIENT_TLS_INSECURE", help="Accept any server certificate, of any CA and for any host."
        ),
    ] = False

    def keys(self) -> Credentials | None:
        """Return the signing keys. None: requests are not signed. Raises SetupError."""
        return credentials(self.access_key, self.secret_key)

    def encryption(self) -> ClientTls | None:
        """Return the TLS settings. None: only ``https://`` is encrypted.

        Raises:
            SetupError: The password is not a reference, or cannot be read.
        """
        if not (self.tls or self.tls_ca or self.tls_cert or self.tls_key or self.tls_insecure):
            return None
        from clients.tls import ClientTls

        password = self.tls_key_password
        if password and not password.startswith(("file:", "env:")):
            raise SetupError("--tls-key-password must be file:PATH or env:NAME, because `ps` shows a command line.")
        word = resolve(password, "--tls-key-password").strip()
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key, word, self.tls_insecure)


def credentials(
    access_key: str, secret_key: str, environ: Mapping[str, str] | None = None, *, of: str = ""
) -> Credentials | None:
    """Return the signing keys. None: requests are not signed.

    Args:
        access_key: Value of --access-key.
        secret_key: Value of --secret-key, as for `secret`.
        environ: Environment for ROCKETMQ_HOME and ``env:``.
        of: Prefix of the options' names: "broker-" for keys of brokers. tools.yml has no such keys.

    Raises:
        SetupError: Only one of the keys is set, or a reference or tools.yml cannot be read.
    """
    found = os.environ if environ is None else environ
    if bool(access_key) != bool(secret_key):
        raise SetupError(f"--{of}access-key and --{of}secret-key must be set together: set both, or neither.")
    token = ""
    if access_key:
        secret_key = secret(f"--{of}secret-key", secret_key, found)
    elif found.get("ROCKETMQ_HOME") and not of:
        access_key, secret_key, token = _tools(Path(found["ROCKETMQ_HOME"]) / _TOOLS)
    if not access_key or not secret_key:
        return None
    from clients.credentials import Credentials

    return Credentials(access_key, secret_key, token)


def secret(option: str, given: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a secret from ``file:PATH`` or ``env:NAME``. Only the option's variable may have the secret itself.

    The command line must not have it, because `ps` shows a command line to all users.

    Args:
        option: Name of the option, or its variable.
        given: Value of the option, or empty.
        environ: Environment for ``env:`` and the variable.

    Raises:
        SetupError: The secret itself is on the command line, it is empty, or the reference cannot be read.
    """
    found = os.environ if environ is None else environ
    if reference_of(given) is None and given and given != found.get(variable_of(option)):
        raise SetupError(
            f"{option} must be file:PATH or env:NAME, because `ps` shows a command line to all users. "
            f"Or set {variable_of(option)}."
        )
    return resolve(given, option, found).strip()


def _tools(path: Path) -> tuple[str, str, str]:
    """Read accessKey, secretKey and securityToken from mqadmin's own file. Missing values are empty."""
    if not path.is_file():
        return "", "", ""
    from security.accounts_text import FileError, read_yaml

    try:
        table = read_yaml(path.read_text("utf-8")).table or {}
    except (OSError, UnicodeDecodeError, FileError) as error:
        why = error if isinstance(error, FileError) else "it is not UTF-8 text"
        raise SetupError(f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else why}.") from None

    def text(name: str) -> str:
        value = table.get(name)
        return "" if value is None else (value.text or "").strip()

    return text("accessKey"), text("secretKey"), text("securityToken")

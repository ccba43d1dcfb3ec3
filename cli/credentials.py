# SPDX-License-Identifier: Apache-2.0
"""With which keys the commands that ask a NameServer sign: options, their variables, or mqadmin's tools.yml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.options import option
from runtime.secrets import EMPTY, NO_TEXT, SecretError, read, reference_of
from schemas.errors import SetupError

if TYPE_CHECKING:
    from clients.credentials import Credentials

AccessKey = Annotated[
    str,
    option(
        "--access-key", help="Sign requests as this account. Default: $ROCKETMQ_HOME/conf/tools.yml, if there is one."
    ),
]
_KEY_VARIABLE: Final = "ROUTELAKE_SECRET_KEY"
SecretKey = Annotated[
    str,
    typer.Option(
        "--secret-key",
        envvar=_KEY_VARIABLE,
        metavar="REFERENCE",
        help="With the key in file:PATH or env:NAME; in the variable, it may be the key itself.",
    ),
]

HttpToken = Annotated[
    str,
    option(
        "--http-token", "--token", metavar="TOKEN", help="Bearer token for routelake's HTTP; or file:PATH, env:NAME."
    ),
]

_TOOLS: Final = Path("conf", "tools.yml")


def credentials(access_key: str, secret_key: str, environ: Mapping[str, str] | None = None) -> Credentials | None:
    """The keys to sign with; None: requests are not signed.

    Args:
        access_key: Of --access-key.
        secret_key: Of --secret-key: ``file:`` or ``env:`` and a name; or the key itself, from its variable alone, since
            `ps` shows everybody what stands on a command line.
        environ: Where ROCKETMQ_HOME and ``env:`` are looked up.

    Raises:
        SetupError: One without the other, or what a reference or tools.yml says cannot be read.
    """
    found = os.environ if environ is None else environ
    if bool(access_key) != bool(secret_key):
        raise SetupError("--access-key and --secret-key belong together: give both, or neither.")
    token = ""
    if access_key:
        given = secret_key
        secret_key = resolve("--secret-key", given, found)
        if secret_key == given != found.get(_KEY_VARIABLE):
            raise SetupError("--secret-key: name it as file:PATH or env:NAME; `ps` shows a command line to everybody.")
    elif found.get("ROCKETMQ_HOME"):
        access_key, secret_key, token = _tools(Path(found["ROCKETMQ_HOME"]) / _TOOLS)
    if not access_key or not secret_key:
        return None
    from clients.credentials import Credentials

    return Credentials(access_key, secret_key, token)


def resolve(option: str, given: str, environ: Mapping[str, str] | None = None) -> str:
    """A secret as ``file:PATH`` or ``env:NAME`` has it; anything else is the secret itself.

    Args:
        option: That it was given to.
        given: What was said.
        environ: Where ``env:`` is looked up.

    Raises:
        SetupError: There is nothing, or it cannot be read.
    """
    reference = reference_of(given)
    if reference is None:
        return given
    try:
        return read(*reference, environ).strip()
    except SecretError as error:
        if error.kind == "env":
            raise SetupError(f"{option} {given}: that variable is not set.") from None
        if error.why == EMPTY:
            raise SetupError(f"{option} {given}: the file is empty.") from None
        why = "it is no text" if error.why == NO_TEXT else error.why
        raise SetupError(f"{option} {given} cannot be read: {why}.") from None


def _tools(path: Path) -> tuple[str, str, str]:
    """Key, secretKey and securityToken of mqadmin's own file; empty where it has none (AclUtils.getAclRPCHook)."""
    if not path.is_file():
        return "", "", ""
    from security.yaml_nodes import FileError, read_yaml

    try:
        table = read_yaml(path.read_text("utf-8")).table or {}
    except (OSError, UnicodeDecodeError, FileError) as error:
        why = error if isinstance(error, FileError) else "it is no text"
        raise SetupError(f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else why}.") from None

    def text(name: str) -> str:
        value = table.get(name)
        return "" if value is None else (value.text or "").strip()

    return text("accessKey"), text("secretKey"), text("securityToken")

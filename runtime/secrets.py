# SPDX-License-Identifier: Apache-2.0
"""Secrets in environment variables and files. Only the processes that need a secret get it: gateways and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.errors import SetupError


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that needs no secrets."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def drop_secrets() -> None:
    """Remove the secrets from the environment of this process, so that its children do not get them."""
    for name in filter(is_secret, list(os.environ)):
        del os.environ[name]


def is_secret(name: str) -> bool:
    """Return True if a variable is secret: a name like ROUTELAKE_HTTP_TOKENS, or a name from `keep_from_children`."""
    is_ours = name.startswith("ROUTELAKE_") and any(word in name for word in ("TOKEN", "SECRET", "PASSWORD"))
    return is_ours or name in _kept


_kept: Final[set[str]] = set()


def keep_from_children(reference: str) -> None:
    """Treat the variable of a reference ``env:NAME`` as secret from now on (`without_secrets`)."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        _kept.add(name)


class SecretError(ValueError):
    """A reference to a secret cannot be resolved. The message has the reason, and never a secret."""


class EmptySecretError(SecretError):
    """A reference to a secret names an empty file or variable."""


def reference_of(text: str) -> tuple[str, str] | None:
    """Kind and name of a reference to a secret, ``file:PATH`` or ``env:NAME``. None: the text is the secret itself."""
    kind, _, name = text.partition(":")
    return (kind, name) if kind in ("file", "env") and kind != text else None


def read(kind: str, name: str, environ: Mapping[str, str] | None = None) -> str:
    """Read the secret of a reference. The line end after the text of a file is removed.

    Args:
        kind: ``file`` or ``env``.
        name: Path or name of the variable.
        environ: Environment for ``env:``. None: the environment of this process.

    Raises:
        SecretError: The file or variable is missing, unreadable or empty.
    """
    if kind == "env":
        found = (os.environ if environ is None else environ).get(name)
        if found is None:
            raise SecretError(f"the environment variable {name} is not set")
    else:
        try:
            found = Path(name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise SecretError(f"{name} is not UTF-8 text") from None
        except OSError as error:
            raise SecretError(f"{name} cannot be read: {error.strerror or error}") from None
    if not found.strip():
        raise EmptySecretError(f"{name} is empty")
    return found


def resolve(text: str, what: str, environ: Mapping[str, str] | None = None, *, may_be_empty: bool = False) -> str:
    """Return a secret that may be given as a reference, ``file:PATH`` or ``env:NAME``.

    Args:
        text: The reference, or the secret itself.
        what: Name of the secret in messages. Messages never show the secret.
        environ: Environment for ``env:``. None: the environment of this process.
        may_be_empty: Whether the secret may be empty, as a password may.

    Raises:
        SetupError: The file or variable is missing, unreadable or empty.
    """
    reference = reference_of(text)
    if reference is None:
        return text
    try:
        return read(*reference, environ)
    except SecretError as error:
        if may_be_empty and isinstance(error, EmptySecretError):
            return ""
        raise SetupError(f"{what}: {error}.") from None

# SPDX-License-Identifier: Apache-2.0
"""Tokens stay with the processes that need them: gateways and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.errors import SetupError


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that has no need of tokens."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def drop_secrets() -> None:
    """Keep what this process starts from them."""
    for name in filter(is_secret, list(os.environ)):
        del os.environ[name]


def is_secret(name: str) -> bool:
    """Return True if a variable holds a secret of gateways and clients: ROUTELAKE_HTTP_TOKENS, or one that was kept."""
    is_ours = name.startswith("ROUTELAKE_") and any(word in name for word in ("TOKEN", "SECRET", "PASSWORD"))
    return is_ours or name in _kept


_kept: Final[set[str]] = set()


def keep_from_children(reference: str) -> None:
    """Give a variable that ``env:NAME`` names to no process that is started from now on `without_secrets`."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        _kept.add(name)


class SecretError(ValueError):
    """A reference to a secret leads to none. The text says why, and shows no secret."""


class EmptySecretError(SecretError):
    """A reference to a secret leads to an empty file or variable."""


def reference_of(text: str) -> tuple[str, str] | None:
    """Kind and name of a reference to a secret, ``file:PATH`` or ``env:NAME``; None: it is the secret itself."""
    kind, _, name = text.partition(":")
    return (kind, name) if kind in ("file", "env") and kind != text else None


def read(kind: str, name: str, environ: Mapping[str, str] | None = None) -> str:
    """The secret that a reference leads to, of a file without the line end after it.

    Args:
        kind: ``file`` or ``env``.
        name: The path or variable.
        environ: Where ``env:`` is looked up; None: this process's.

    Raises:
        SecretError: There is none.
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
    """A secret that may be written as a reference, ``file:PATH`` or ``env:NAME``.

    Args:
        text: The reference, or the secret itself.
        what: What it is, for messages. They never show it.
        environ: Where ``env:`` is looked up; None: this process's.
        may_be_empty: True for passwords: a reference to an empty one is allowed.

    Raises:
        SetupError: There is no such file or variable.
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

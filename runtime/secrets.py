# SPDX-License-Identifier: Apache-2.0
"""Tokens stay with the processes that need them: gateways and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import SetupError


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that has no need of tokens."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def drop_secrets() -> None:
    """Keep what this process starts from them."""
    for name in filter(is_secret, list(os.environ)):
        del os.environ[name]


def is_secret(name: str) -> bool:
    """Whether a variable of ours holds a token: ROUTELAKE_HTTP_TOKENS, ROUTELAKE_HTTP_TOKEN."""
    return name.startswith("ROUTELAKE_") and any(word in name for word in ("TOKEN", "SECRET", "PASSWORD"))


def resolve(text: str, what: str) -> str:
    """A secret that may be written as a reference: ``file:PATH`` (without its last line end) or ``env:NAME``.

    Args:
        text: The reference, or the secret itself.
        what: What it is, for messages. They never show it.

    Raises:
        SetupError: There is no such file or variable.
    """
    kind, colon, place = text.partition(":")
    if kind == "file" and colon:
        try:
            return Path(place).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise SetupError(f"{what}: {place} cannot be read: {why}.") from None
    if kind == "env" and colon:
        value = os.environ.get(place)
        if value is None:
            raise SetupError(f"{what}: there is no environment variable {place}.")
        return value
    return text

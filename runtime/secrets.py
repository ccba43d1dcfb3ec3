# SPDX-License-Identifier: Apache-2.0
"""Tokens stay with the processes that need them: gateways and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping


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

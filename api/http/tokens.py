# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens of `HttpSettings.tokens`: whose one is."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from schemas.errors import SetupError

_HASHED: Final = "sha256:"
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


class Tokens:
    """Digests of the tokens there are. Truthy if there are any."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Take them in.

        Args:
            tokens: By user; a token, or ``sha256:`` and its digest.

        Raises:
            SetupError: one is empty, or its digest invalid.
        """
        self._digests = {user: _digest(user, token) for user, token in tokens.items()}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def user(self, token: str) -> str | None:
        """Whose it is; None: nobody's."""
        given = hashlib.sha256(token.strip().encode("latin-1")).digest()
        found: str | None = None
        for user, digest in self._digests.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, given):
                found = user
        return found


def _digest(user: str, token: str) -> bytes:
    if token.startswith(_HASHED):
        text = token.removeprefix(_HASHED)
        if not _HEX_DIGEST.fullmatch(text):
            raise SetupError(f"the token of {user!r} is no SHA-256 digest: expected sha256: and 64 hexadecimal digits.")
        return bytes.fromhex(text)
    if not token.strip():
        raise SetupError(f"the token of {user!r} is empty.")
    return hashlib.sha256(token.strip().encode()).digest()

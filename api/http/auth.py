# SPDX-License-Identifier: Apache-2.0
"""Who may write, and under which name it goes into the history.

With tokens configured, a write needs one of them. Without, writes are accepted from this machine only. Reads are open
unless `HttpSettings.protect_reads` says otherwise. What other sites' pages send was refused before (`api.http.sites`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from starlette.requests import Request

from api.http.problems import FORBIDDEN, UNAUTHORIZED, Problem
from api.http.settings import HttpSettings
from api.names import is_loopback
from schemas.errors import SetupError
from schemas.events import Actor

_HASHED: Final = "sha256:"
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="routelake"'}


class Guard:
    """Decides who may write, and who may read."""

    def __init__(self, settings: HttpSettings, gateway_id: str) -> None:
        """Take the tokens in.

        Raises:
            SetupError: a token is empty, or its digest invalid.
        """
        self._settings = settings
        self._gateway_id = gateway_id
        self._digests = {user: _digest(user, token) for user, token in settings.tokens.items()}

    @property
    def protects_reads(self) -> bool:
        """Whether reads need a token."""
        return self._settings.protect_reads and bool(self._digests)

    def writer(self, request: Request) -> Actor:
        """The actor of a write.

        Raises:
            Problem: it may not write.
        """
        user = self._user(request) if self._digests else None
        if not self._digests and not self._settings.anonymous_writes:
            self._check_local(request)
        return Actor(gateway=self._gateway_id, via="http", peer=peer_of(request), user=user)

    def reader(self, request: Request) -> None:
        """Let a read pass.

        Raises:
            Problem: it needs a token.
        """
        if self.protects_reads:
            self._user(request)

    def _user(self, request: Request) -> str:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Problem(UNAUTHORIZED, "send Authorization: Bearer <token>", headers=_CHALLENGE)
        given = hashlib.sha256(token.strip().encode("latin-1")).digest()
        found: str | None = None
        for user, digest in self._digests.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, given):
                found = user
        if found is None:
            raise Problem(UNAUTHORIZED, "that token is not known here", headers=_CHALLENGE)
        return found

    def _check_local(self, request: Request) -> None:
        if request.client is not None and not is_loopback(request.client.host):
            raise Problem(
                FORBIDDEN,
                "without tokens, writes are accepted from this machine only: "
                "give the gateway tokens, or allow anonymous writes in its settings",
            )


def peer_of(request: Request) -> str | None:
    """``ip:port`` of the other side. Headers of proxies are not believed."""
    client = request.client
    if client is None:
        return None
    return f"[{client.host}]:{client.port}" if ":" in client.host else f"{client.host}:{client.port}"


def _digest(user: str, token: str) -> bytes:
    if token.startswith(_HASHED):
        text = token.removeprefix(_HASHED)
        if not _HEX_DIGEST.fullmatch(text):
            raise SetupError(f"the token of {user!r} is no SHA-256 digest: expected sha256: and 64 hexadecimal digits.")
        return bytes.fromhex(text)
    if not token.strip():
        raise SetupError(f"the token of {user!r} is empty.")
    return hashlib.sha256(token.strip().encode()).digest()

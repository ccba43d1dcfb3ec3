# SPDX-License-Identifier: Apache-2.0
"""Refused proofs, counted by address: a client that guesses tokens has to wait before anything is checked.

A proof is a token, a session, or a write, which needs one of them. If an address has sent too many wrong proofs
recently, the answer is 429. A proof that was accepted from that address within the last minutes still counts. So a
stranger behind the same proxy cannot lock out authenticated users.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Final

from starlette.types import Scope

from api.http.csrf import PROBES, SAFE_METHODS
from api.http.problems import FORBIDDEN, UNAUTHORIZED
from remoting.codec.bounds import address_of
from runtime.bounded import BoundedCache
from security.admission.quotas import GatewayQuotas

PROVEN: Final = "routelake.proven"
"""Key in an ASGI scope: a token or session has identified the sender of the request."""
SESSION_PATH: Final = "/console/session"

_SHOWN: Final = frozenset({b"authorization", b"cookie"})
_HOLDS_S: Final = 600.0
_MOST_BYTES: Final = 1 << 20
_ENTRY_BYTES: Final = 100
_BAD_REQUEST: Final = range(400, 500)
_NOT_REFUSED: Final = frozenset({408, 429})


class Proofs:
    """Proofs of the senders of one gateway. Used on its event loop."""

    def __init__(self, quotas: GatewayQuotas) -> None:
        """Start without any refused proof.

        Args:
            quotas: Quotas with the limit.
        """
        self._quotas = quotas
        self._proven: BoundedCache[tuple[str, bytes], float] = BoundedCache(_MOST_BYTES)

    def check(self, scope: Scope) -> None:
        """Let a request pass if its address may try another proof.

        Raises:
            QuotaError: Too many proofs of its address were refused.
        """
        client = scope["client"]
        if client is None or not _is_proof(scope):
            return
        address = address_of(client[0])
        if self._quotas.is_guessing(address) and not self.was_proven(scope):
            self._quotas.refuse_guess(address, f"{client[0]}:{client[1]}")

    def record(self, scope: Scope, status: int) -> None:
        """Count a refused proof, or remember an accepted one.

        Args:
            scope: Scope of the request, after its answer.
            status: Status of the answer; 0 without an answer.
        """
        client = scope["client"]
        if client is None or not _is_proof(scope):
            return
        address = address_of(client[0])
        is_login = scope["path"] == SESSION_PATH and scope["method"] == "POST"
        is_refused = scope.get("routelake.problem") in (UNAUTHORIZED, FORBIDDEN)
        if is_refused or (is_login and status in _BAD_REQUEST and status not in _NOT_REFUSED):
            self._quotas.guessed(address)
        elif scope.get(PROVEN):
            digest = _digest(scope["headers"])
            if digest is not None:
                self._proven.put((address, digest), time.monotonic(), _ENTRY_BYTES)

    def was_proven(self, scope: Scope) -> bool:
        """Return whether the Authorization header of a request was accepted from its address recently."""
        digest = _digest(scope["headers"])
        then_s = None if digest is None else self._proven.get((address_of(scope["client"][0]), digest))
        return then_s is not None and time.monotonic() - then_s < _HOLDS_S


def _is_proof(scope: Scope) -> bool:
    if scope["path"] in PROBES:
        return False
    return scope["method"] not in SAFE_METHODS or any(name in _SHOWN for name, _ in scope["headers"])


def _digest(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    sent = next((value for name, value in headers if name == b"authorization"), None)
    return None if sent is None else hashlib.sha256(sent).digest()

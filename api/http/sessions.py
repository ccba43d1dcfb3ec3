# SPDX-License-Identifier: Apache-2.0
"""Sessions of the console: the gateway keeps a bearer token that a browser has sent once, until the session ends.

The browser holds a random id in a cookie. No script can read the cookie (HttpOnly), and the browser does not send it
with a request that another site began (SameSite=Strict). Cookies are shared by all ports of a host. So a request that a
page at another port of this host began (Sec-Fetch-Site: same-site) is answered as if there were no session. Writes of
such pages are refused anyway (`api.http.csrf`). A session has no rights of its own: each request is authorized as if it
had sent the session's token. So the session ends when the token expires or the account is removed.

Over https the cookie is Secure and has the prefix ``__Host-``. Browsers do not let other hosts or pages over http set
such a cookie. Over http a page at another port of this host may set the cookie, to a session of its own.

A session belongs to one gateway, with all its worker processes. A restart ends it. Tokens are stored encrypted, in
memory or in a folder that the workers share. Only the id of a session decrypts its token, and only browsers have ids.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from starlette.types import Scope

from schemas.errors import UnavailableError

SESSION_S: Final = 12 * 3600
"""Duration of a session, in seconds. Activity does not extend it."""
MOST: Final = 1000
"""Maximum number of sessions. A new one ends the oldest."""
_NONCE: Final = bytes(12)
"""Nonce. It may be constant, because each key encrypts one text: each id belongs to one session."""
_ID_BYTES: Final = 32
_OWN_DOING: Final = frozenset({b"same-origin", b"none"})


class Sessions:
    """Sessions of one gateway. Used on its event loop."""

    def __init__(self, folder: Path | None = None, *, tls_in_front: bool = False) -> None:
        """Start without sessions, or with those that other workers have begun.

        Args:
            folder: Folder that all workers share and only this user may read, created if needed. None: sessions are
                kept in this process.
            tls_in_front: Whether browsers use https although requests reach this gateway by http.
        """
        self._store: _Memory | _Folder = _Memory() if folder is None else _Folder(folder)
        self._tls_in_front = tls_in_front

    def begin(self, scope: Scope, token: str) -> str:
        """Begin a session in place of the sender's present one. Return the Set-Cookie header.

        Args:
            scope: Scope of the request.
            token: Token that has been accepted.

        Raises:
            UnavailableError: The session cannot be stored.
        """
        self.end(scope)
        session = secrets.token_urlsafe(_ID_BYTES)
        text = f"{time.monotonic() + SESSION_S} {token}".encode("latin-1")  # all workers share the machine's clock
        self._store.put(_name(session), AESGCM(_key(session)).encrypt(_NONCE, text, None))
        return f"{self._cookie_name(scope)}={session}; Max-Age={SESSION_S}; {self._attributes(scope)}"

    def end(self, scope: Scope) -> str:
        """End the session. Return the Set-Cookie header that makes the browser delete its cookie."""
        session = self._cookie(scope)
        if session is not None:
            self._store.drop(_name(session))
        return f"{self._cookie_name(scope)}=; Max-Age=0; {self._attributes(scope)}"

    def admit(self, scope: Scope) -> None:
        """Add the session's token to a request with a session cookie and without Authorization."""
        session = self._cookie(scope)
        if session is None:
            return
        sent = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if not _OWN_DOING.issuperset(sent) or any(name == b"authorization" for name, _ in scope["headers"]):
            return
        token = self._token(session)
        if token is not None:
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer " + token)]

    def _token(self, session: str) -> bytes | None:
        """Return the token of a session. None if it has ended."""
        sealed = self._store.get(_name(session))
        if sealed is None:
            return None
        try:
            ends_s, _, token = AESGCM(_key(session)).decrypt(_NONCE, sealed, None).partition(b" ")
        except InvalidTag:
            return None
        return token if time.monotonic() < float(ends_s) else None

    def _cookie_name(self, scope: Scope) -> str:
        """Return a name with the port: a host's ports share cookies. Browsers accept ``__Host-`` only over https."""
        _, port = scope.get("server") or ("", 0)
        return f"{'__Host-' if self._is_tls(scope) else ''}routelake-{port}"

    def _attributes(self, scope: Scope) -> str:
        return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._is_tls(scope) else "")

    def _is_tls(self, scope: Scope) -> bool:
        return self._tls_in_front or scope.get("scheme") == "https"

    def _cookie(self, scope: Scope) -> str | None:
        """Return the value of this gateway's own cookie. Cookies of other pages of this host are ignored."""
        ours = re.compile(rb"(?:^|;)[ \t]*%b[ \t]*=([^;]*)" % re.escape(self._cookie_name(scope).encode()))
        for header, cookies in scope["headers"]:
            if header == b"cookie" and (found := ours.search(cookies)):
                return str(found[1].strip(), "latin-1")
        return None


class _Memory:
    """Store in the memory of this process."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, bytes] = OrderedDict()

    def put(self, name: str, sealed: bytes) -> None:
        self._found[name] = sealed
        while len(self._found) > MOST:
            self._found.popitem(last=False)

    def get(self, name: str) -> bytes | None:
        return self._found.get(name)

    def drop(self, name: str) -> None:
        self._found.pop(name, None)


class _Folder:
    """Store with one file for each token. No reader sees a partial file: the browser gets the id after the write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def put(self, name: str, sealed: bytes) -> None:
        try:
            self._make_room()
            (self._folder / name).write_bytes(sealed)
        except OSError as error:
            raise UnavailableError(f"the gateway cannot keep sessions: {error.strerror}") from error

    def _make_room(self) -> None:
        found: list[tuple[int, Path]] = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another worker has ended it
                found.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(found)[: max(0, len(found) - MOST + 1)]:
            path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return None

    def drop(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


def _name(session: str) -> str:
    """Return the digest to look up, so that the time of a look-up leaks nothing about existing ids."""
    return _digest(session, b"name").hex()


def _key(session: str) -> bytes:
    return _digest(session, b"key")


def _digest(session: str, person: bytes) -> bytes:
    return hashlib.blake2b(session.encode("latin-1", "replace"), digest_size=32, person=person).digest()

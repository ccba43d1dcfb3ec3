# SPDX-License-Identifier: Apache-2.0
"""Sessions of the console: a bearer token that a browser gave once, kept by the gateway for as long as the session.

The browser holds a random id in a cookie that no script can read (HttpOnly) and that it sends with nothing which
another site began (SameSite=Strict). Cookies do not keep ports of a host apart, so what a page at another port of this
host makes a browser ask (Sec-Fetch-Site: same-site) is answered as if there were no session; writes of such pages are
refused anyway (`api.http.csrf`). A session has no rights of its own: each request is authorized by its token, as if it
had sent the token. So the session ends when the token expires or the account is removed.

Over https the cookie is Secure and has the prefix ``__Host-``, which browsers let nobody else set. Over http a page at
another port of this host may set it, to a session of its own.

Sessions are of one gateway, with all its worker processes. A restart ends them. Tokens are kept sealed, in memory or in
a folder that the workers share: only the id of a session opens its token, and ids are in browsers alone.
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
"""A session lasts that long, whatever is done in it."""
MOST: Final = 1000
"""Maximum number of sessions; a new one ends the oldest."""
_NONCE: Final = bytes(12)
"""May be any: a key seals one text, since an id is of one session."""
_ID_BYTES: Final = 32
_OWN_DOING: Final = frozenset({b"same-origin", b"none"})


class Sessions:
    """Sessions of one gateway. Lives on its event loop."""

    def __init__(self, folder: Path | None = None, *, tls_in_front: bool = False) -> None:
        """Start without sessions, or with those that other workers have begun.

        Args:
            folder: Folder that all workers share; None: sessions are kept in this process.
            tls_in_front: Whether browsers come by https though the requests reach this gateway by http.
        """
        self._tokens = SealedSessionStore(folder)
        self._tls_in_front = tls_in_front

    def begin(self, scope: Scope, token: str) -> str:
        """Begin a session for the sender of this request, in place of its present one; return the Set-Cookie header.

        Args:
            scope: Scope of the request.
            token: Token that has been accepted.

        Raises:
            UnavailableError: The session cannot be stored.
        """
        self.end(scope)
        session = secrets.token_urlsafe(_ID_BYTES)
        self._tokens.keep(session, token)
        return f"{self._cookie_name(scope)}={session}; Max-Age={SESSION_S}; {self._attributes(scope)}"

    def end(self, scope: Scope) -> str:
        """No session any more; the Set-Cookie header that lets the browser forget its cookie."""
        session = self._cookie(scope)
        if session is not None:
            self._tokens.forget(session)
        return f"{self._cookie_name(scope)}=; Max-Age=0; {self._attributes(scope)}"

    def admit(self, scope: Scope) -> None:
        """Give a request that came with a session's cookie, and without Authorization, the session's token."""
        session = self._cookie(scope)
        if session is None:
            return
        sent = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if not _OWN_DOING.issuperset(sent) or any(name == b"authorization" for name, _ in scope["headers"]):
            return
        token = self._tokens.token(session)
        if token is not None:
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer " + token)]

    def _cookie_name(self, scope: Scope) -> str:
        """One for each port: cookies of a host are common to all of them. ``__Host-`` is kept for https by browsers."""
        _, port = scope.get("server") or ("", 0)
        return f"{'__Host-' if self._is_tls(scope) else ''}routelake-{port}"

    def _attributes(self, scope: Scope) -> str:
        return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._is_tls(scope) else "")

    def _is_tls(self, scope: Scope) -> bool:
        return self._tls_in_front or scope.get("scheme") == "https"

    def _cookie(self, scope: Scope) -> str | None:
        """Return the value of this gateway's own cookie; cookies of other pages of this host are ignored."""
        ours = re.compile(rb"(?:^|;)[ \t]*%b[ \t]*=([^;]*)" % re.escape(self._cookie_name(scope).encode()))
        for header, cookies in scope["headers"]:
            if header == b"cookie" and (found := ours.search(cookies)):
                return str(found[1].strip(), "latin-1")
        return None


class SealedSessionStore:
    """Tokens by the id of their session, sealed with it.

    In a folder that all worker processes of a gateway share, a session is there, and has ended, in all of them at once.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Start without tokens, or with those that the folder has.

        Args:
            folder: Folder of this user alone, created if needed. None: tokens are kept in memory.
        """
        self._store: _Memory | _Folder = _Memory() if folder is None else _Folder(folder)

    def keep(self, session: str, token: str) -> None:
        """Keep a token for `SESSION_S`.

        Args:
            session: Id that cannot be guessed, and that no other session has had.
            token: Token of the holder of the session.

        Raises:
            UnavailableError: The folder cannot be written.
        """
        text = f"{time.monotonic() + SESSION_S} {token}".encode("latin-1")  # of the machine: workers have one clock
        self._store.put(_name(session), AESGCM(_key(session)).encrypt(_NONCE, text, None))

    def token(self, session: str) -> bytes | None:
        """The token of a session that has not ended."""
        sealed = self._store.get(_name(session))
        if sealed is None:
            return None
        try:
            ends_s, _, token = AESGCM(_key(session)).decrypt(_NONCE, sealed, None).partition(b" ")
        except InvalidTag:
            return None
        return token if time.monotonic() < float(ends_s) else None

    def forget(self, session: str) -> None:
        """End a session: drop its token."""
        self._store.drop(_name(session))


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
    """A file each. Nobody asks for one before it is whole: its id is told afterwards."""

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
    """Return the name to look up, so that the time of a look-up tells nothing of existing ids."""
    return _digest(session, b"name").hex()


def _key(session: str) -> bytes:
    return _digest(session, b"key")


def _digest(session: str, person: bytes) -> bytes:
    return hashlib.blake2b(session.encode("latin-1", "replace"), digest_size=32, person=person).digest()

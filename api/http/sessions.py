# SPDX-License-Identifier: Apache-2.0
"""Sessions of the console: a bearer token that a browser gave once, kept by the gateway for as long as the session.

The browser holds a random id in a cookie that no script can read (HttpOnly) and that it sends with nothing which
another site began (SameSite=Strict). Cookies do not keep ports of a host apart, so what a page at another port of this
host makes a browser ask (Sec-Fetch-Site: same-site) is answered as if there were no session; writes of such pages are
refused anyway (`api.http.sites`). A session is no right of its own: each request is judged by its token as if that had
come with it, so it ends when the token expires or the account goes.

Sessions live in this process. A restart ends them.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple

from starlette.types import Scope

SESSION_S: Final = 12 * 3600
"""A session lasts that long, whatever is done in it."""
MOST: Final = 1000
"""So many are kept; a new one ends the oldest."""
_ID_BYTES: Final = 32
_OWN_DOING: Final = frozenset({b"same-origin", b"none"})


class _Session(NamedTuple):
    token: bytes
    ends_s: float


class Sessions:
    """Of one gateway. Lives on its event loop."""

    def __init__(self) -> None:
        """None yet."""
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, scope: Scope, token: str) -> str:
        """A new session of whoever sent this request, in place of the one it has; the Set-Cookie header.

        Args:
            scope: The request's.
            token: Which has been judged: it is somebody's.
        """
        self.end(scope)
        name = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[_digest(name)] = _Session(token.encode("latin-1"), time.monotonic() + SESSION_S)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        return f"{_cookie_name(scope)}={name}; Max-Age={SESSION_S}; {_attributes(scope)}"

    def end(self, scope: Scope) -> str:
        """No session any more; the Set-Cookie header that lets the browser forget its cookie."""
        found = _cookie(scope)
        if found is not None:
            self._sessions.pop(_digest(found), None)
        return f"{_cookie_name(scope)}=; Max-Age=0; {_attributes(scope)}"

    def admit(self, scope: Scope) -> None:
        """Give a request that came with a session's cookie, and without Authorization, the session's token."""
        if not self._sessions:
            return
        sent = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if not _OWN_DOING.issuperset(sent) or any(name == b"authorization" for name, _ in scope["headers"]):
            return
        found = _cookie(scope)
        session = None if found is None else self._sessions.get(_digest(found))
        if session is not None and time.monotonic() < session.ends_s:
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer " + session.token)]


def _cookie_name(scope: Scope) -> str:
    """One for each port: cookies of a host are common to all of them. ``__Host-`` is kept for https by browsers."""
    _, port = scope.get("server") or ("", 0)
    return f"{'__Host-' if _is_tls(scope) else ''}routelake-{port}"


def _attributes(scope: Scope) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if _is_tls(scope) else "")


def _is_tls(scope: Scope) -> bool:
    return scope.get("scheme") == "https"


def _cookie(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(_cookie_name(scope))
            except CookieError:
                continue
            if found is not None:
                return found.value
    return None


def _digest(name: str) -> bytes:
    """What is looked up, so that the time of it tells nothing of the ids that there are."""
    return hashlib.sha256(name.encode("latin-1", "replace")).digest()

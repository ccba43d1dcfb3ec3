# SPDX-License-Identifier: Apache-2.0
"""Sessions of the console: a bearer token that a browser gave once, kept by the gateway for as long as the session.

The browser holds a random id in a cookie that no script can read (HttpOnly) and that it sends with nothing which
another site began (SameSite=Strict). Cookies do not keep ports of a host apart, so what a page at another port of this
host makes a browser ask (Sec-Fetch-Site: same-site) is answered as if there were no session; writes of such pages are
refused anyway (`api.http.csrf`). A session is no right of its own: each request is judged by its token as if that had
come with it, so it ends when the token expires or the account goes.

Over https the cookie is Secure and has the prefix ``__Host-``, which browsers let nobody else set. Over http a page at
another port of this host may set it, to a session of its own.

Sessions are of one gateway, with all its worker processes (`api.http.sealed_sessions`). A restart ends them.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from starlette.types import Scope

from api.http.sealed_sessions import SESSION_S, SealedSessionStore

_ID_BYTES: Final = 32
_OWN_DOING: Final = frozenset({b"same-origin", b"none"})


class Sessions:
    """Of one gateway. Lives on its event loop."""

    def __init__(self, folder: Path | None = None, *, tls_in_front: bool = False) -> None:
        """None yet, or those that other workers have begun.

        Args:
            folder: Where they are kept together; None: in this process.
            tls_in_front: Whether browsers come by https though this gateway is asked by http.
        """
        self._tokens = SealedSessionStore(folder)
        self._tls_in_front = tls_in_front

    def begin(self, scope: Scope, token: str) -> str:
        """A new session of whoever sent this request, in place of the one it has; the Set-Cookie header.

        Args:
            scope: The request's.
            token: Which has been judged: it is somebody's.

        Raises:
            UnavailableError: It cannot be kept.
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
        """Of its own value: what other pages of this host have in their cookies may be anything, and is passed over."""
        ours = re.compile(rb"(?:^|;)[ \t]*%b[ \t]*=([^;]*)" % re.escape(self._cookie_name(scope).encode()))
        for header, cookies in scope["headers"]:
            if header == b"cookie" and (found := ours.search(cookies)):
                return str(found[1].strip(), "latin-1")
        return None

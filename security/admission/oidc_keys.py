# SPDX-License-Identifier: Apache-2.0
"""Keys of an OpenID Connect issuer, fetched in the background and cached, and identification of token holders.

Keys are fetched at the start, every `REFRESH_S`, and when a token names an unknown key, but at most once in
`COOL_DOWN_S`. While the issuer does not answer, the last keys stay in use.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from runtime.bounded import BoundedCache
from runtime.supervised_tasks import critical_task
from runtime.version import release
from security.accounts import digest_of
from security.identity import Identity, Unproven
from security.oidc import Keys, Refusal, identify_token, is_jwt, keys_of
from security.policy import OidcSettings, is_safe

log = structlog.get_logger("routelake.gateway")

REFRESH_S: Final = 600.0
COOL_DOWN_S: Final = 30.0
_TIMEOUT_S: Final = 5.0
_DOCUMENT_BYTES: Final = 256 * 1024
_KNOWN_BYTES: Final = 4 * 1024 * 1024
_ENTRY_BYTES: Final = 400

Fetch = Callable[[str], Any]
"""Function of a URL that returns its JSON. Called in any thread. Raises OSError, ValueError."""


class Oidc:
    """Tokens of one issuer. Used on the gateway's event loop.

    Attributes:
        problem: Reason why the last fetch of the keys failed. None if it succeeded.
    """

    def __init__(
        self,
        settings: OidcSettings,
        fetch: Fetch | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare, without keys before `start`.

        Args:
            settings: Settings of the operator.
            fetch: Replacement for the request to the issuer over HTTP.
            now_s: Clock in seconds that only goes forward.
        """
        self._settings = settings
        self._fetch = fetch or fetch_json
        self._now_s = now_s
        self._keys: Keys = {}
        self._known: BoundedCache[bytes, tuple[Identity, float]] = BoundedCache(_KNOWN_BYTES)
        """Identity and time of expiry, by digest of a valid token."""
        self._tried_s = -COOL_DOWN_S
        self._trying: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self.problem: str | None = "the issuer's keys were not fetched yet"

    def start(self) -> None:
        """Start to fetch the keys."""
        self._timer = critical_task(asyncio.get_running_loop().create_task(self._go_on()), "OIDC issuer's keys")

    def stop(self) -> None:
        """Stop fetching the keys."""
        for task in (self._timer, self._trying):
            if task is not None:
                task.cancel()

    def identify(self, token: str) -> Identity | Unproven:
        """Identify the holder of a token that `is_jwt`."""
        found = self._look(token)
        return found if isinstance(found, Identity) else found.why

    async def prepare(self, token: str) -> None:
        """Prepare `identify`: if a token names an unknown key, fetch the keys, but not too often."""
        if not is_jwt(token):
            return
        found = self._look(token)
        if isinstance(found, Identity) or not found.is_stranger:
            return
        if self._trying is None and self._now_s() - self._tried_s >= COOL_DOWN_S:
            self._try()
        if self._trying is not None:
            await asyncio.wait([self._trying], timeout=2 * _TIMEOUT_S)

    def _look(self, token: str) -> Identity | Refusal:
        digest = digest_of(token.encode())
        known = self._known.get(digest)
        if known is not None and time.time() < known[1]:
            return known[0]
        found = identify_token(token, self._keys, self._settings)
        if isinstance(found, Refusal):
            return found
        self._known.put(digest, found, _ENTRY_BYTES)
        return found[0]

    async def _go_on(self) -> None:
        while True:
            if self._trying is None:
                self._try()
            assert self._trying is not None
            await asyncio.wait([self._trying])
            await asyncio.sleep(REFRESH_S if self.problem is None else COOL_DOWN_S)

    def _try(self) -> None:
        self._tried_s = self._now_s()
        self._trying = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            keys = await asyncio.to_thread(self._read)
        except Exception as error:
            reason = f"the keys of {self._settings.issuer} cannot be fetched: {error}"
            if reason != self.problem:
                log.error("cannot fetch the OIDC issuer's keys; using the cached keys", reason=reason)
            self.problem = reason
        else:
            if keys.keys() != self._keys.keys():
                log.info("OIDC issuer's keys loaded", keys=len(keys))
            self._keys, self.problem = keys, None
            self._known = BoundedCache(_KNOWN_BYTES)  # a removed key identifies no token any more
        finally:
            self._trying = None

    def _read(self) -> Keys:
        issuer = self._settings.issuer
        about = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        named = about.get("issuer") if isinstance(about, Mapping) else None
        if not isinstance(about, Mapping) or named != issuer:
            raise ValueError(f"its openid-configuration names another issuer, {str(named)[:200]!r}")
        keys = keys_of(self._fetch(str(about.get("jwks_uri"))))
        if not keys:
            raise ValueError("it has no key that signs")
        return keys


_HEADERS: Final = {"User-Agent": f"routelake/{release()}", "Accept": "application/json"}
"""Headers of the requests. Some issuers refuse the user agent of Python's library."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 (urllib's)
        return None


def fetch_json(url: str) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON at a URL. Redirects are not followed.

    Raises:
        OSError: There is no answer, or its status is not 200. The message names the address.
        ValueError: The address is not safe, or the answer is not JSON, or it is too large.
    """
    shown = url[:200]
    if not is_safe(url):
        raise ValueError(f"{shown} is not an https address")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(urllib.request.Request(url, headers=_HEADERS), timeout=_TIMEOUT_S) as answer:  # noqa: S310 (is_safe)
            data = answer.read(_DOCUMENT_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            location = error.headers.get("Location")
        moved = f", to {location[:200]!r}: redirects are not followed" if location else ""
        raise OSError(f"{shown} answered {error.code} {error.reason}{moved}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{shown} does not answer: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"{shown} does not answer: {str(error) or type(error).__name__}") from None
    if len(data) > _DOCUMENT_BYTES:
        raise ValueError(f"{shown} has more than {_DOCUMENT_BYTES} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown} answered with what is no JSON: {error}") from None

# SPDX-License-Identifier: Apache-2.0
"""`KafkaAccess` as options of kafka-python, and its tokens for SASL OAUTHBEARER.

A token is in a file, or comes from an OAuth 2.0 endpoint by the client credentials grant.

Sources: RFC 6749, section 4.4; Kafka's FileJwtRetriever and ClientCredentialsJwtRetriever (KIP-768, KIP-1139).
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from eventlog.kafka.access.settings import AccessError, KafkaAccess, OAuth

_ANSWER_S: Final = 10.0
_MAX_BYTES: Final = 1024 * 1024
_KEPT_SHARE: Final = 0.8
"""Share of a token's lifetime after which a new token is requested. It is Kafka's own default."""
_SHORT_LIFE_S: Final = 300.0
"""Lifetime of a token, in seconds, if its endpoint does not name one."""


class Tokens(AbstractTokenProvider):
    """Token provider for kafka-python, which calls it at each connect and each re-authentication. Thread-safe.

    Args:
        oauth: Source of the tokens.
        source: Name of the properties file, for messages. Messages never show a secret.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, oauth: OAuth, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._oauth = oauth
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._use_until_s = 0.0

    def token(self) -> str:
        """Return a token that stays valid for some time.

        Raises:
            AccessError: The source gives no token. The message has the reason.
        """
        if self._oauth.endpoint.startswith("file:"):
            return self._from_file()
        with self._lock:
            if self._clock() >= self._use_until_s:
                self._token, life_s = self._ask()
                self._use_until_s = self._clock() + life_s * _KEPT_SHARE
            return self._token

    def _from_file(self) -> str:
        path = Path(urllib.parse.unquote(urllib.parse.urlsplit(self._oauth.endpoint).path))
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a token"
            raise AccessError(f"{self._source}: the token file {path} cannot be read: {why}.") from None
        if not token:
            raise AccessError(f"{self._source}: the token file {path} is empty.")
        return token

    def _ask(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials", **({"scope": self._oauth.scope} if self._oauth.scope else {})}
        pair = ":".join(map(urllib.parse.quote_plus, (self._oauth.client_id, self._oauth.client_secret)))
        request = urllib.request.Request(  # noqa: S310 (https:, or http: on this machine: `read_access`)
            self._oauth.endpoint,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Accept": "application/json"},
        )
        where = f"{self._source}: the token endpoint {self._oauth.endpoint}"
        try:
            with _OPENER.open(request, timeout=_ANSWER_S) as response:
                answer: Any = json.loads(response.read(_MAX_BYTES))
            token, life_s = answer["access_token"], float(answer.get("expires_in", _SHORT_LIFE_S))
        except urllib.error.HTTPError as error:
            error.close()
            advice = " Correct client id and secret." if error.code in (400, 401, 403) else ""
            raise AccessError(f"{where} refused the request: {error.code} {error.reason}.{advice}") from None
        except OSError as error:
            raise AccessError(f"{where} does not answer: {getattr(error, 'reason', error)}.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AccessError(f"{where} returned no access_token. Correct its address.") from None
        return str(token), life_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect, because a redirect would send the client's secret to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def client_options(access: KafkaAccess) -> dict[str, Any]:
    """Options of kafka-python's clients.

    Raises:
        AccessError: A file that the properties name cannot be used.
    """
    if not access.source:
        return {}
    options: dict[str, Any] = {"security_protocol": str(access.protocol)}
    if access.client_id:
        options["client_id"] = access.client_id
    if access.protocol.encrypts:
        from eventlog.kafka.access.tls import client_context

        options["ssl_context"] = client_context(access.tls, access.source)
    if access.protocol.authenticates:
        options["sasl_mechanism"] = access.mechanism
        if access.oauth is not None:
            options["sasl_oauth_token_provider"] = Tokens(access.oauth, access.source)
        else:
            options |= {"sasl_plain_username": access.username, "sasl_plain_password": access.password}
    return options

# SPDX-License-Identifier: Apache-2.0
"""Settings of the OpenID Connect issuer whose tokens are accepted."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

ROLE_CLAIM: Final = "scope"


class OidcSettings(NamedTuple):
    """Settings that an operator has chosen.

    Attributes:
        issuer: URL; `iss` of its tokens.
        audience: `aud` of the tokens that are meant for routelake.
        role_claim: The claim that holds roles: words with blanks between, or a list; dots lead into objects,
            and a name may hold dots itself (the longest one that is there counts).
    """

    issuer: str
    audience: str
    role_claim: str = ROLE_CLAIM


def is_safe(url: str) -> bool:
    """Return whether no third party can intercept requests to a URL: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))

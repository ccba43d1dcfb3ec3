# SPDX-License-Identifier: Apache-2.0
"""Which OpenID Connect issuer's tokens count."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

ROLE_CLAIM: Final = "scope"


class OidcSettings(NamedTuple):
    """What an operator has chosen.

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
    """Whether nobody can come between: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))

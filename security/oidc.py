# SPDX-License-Identifier: Apache-2.0
"""Identity by JWTs of an OpenID Connect issuer. `security.admission.oidc_keys` fetches its keys.

Sources: RFC 7519 (claims), RFC 7517 (keys), RFC 8725 (what to refuse), OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt

from security.identity import Identity, Unproven
from security.policy import OidcSettings
from security.roles import Role

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Accepted signature algorithms. A public key can make none of them, and `none` is not accepted."""

ROLE_PREFIX: Final = "routelake:"
"""Prefix of a role in the claim: routelake:reader, routelake:broker, routelake:admin."""
USER_PREFIX: Final = "oidc:"
"""Prefix of `sub`, because an account of the file may have the same name."""

LEEWAY_S: Final = 30
"""Maximum difference between the issuer's clock and this one, in seconds."""
_TOKEN_BYTES: Final = 16 * 1024
_REQUIRED: Final = ["iss", "aud", "exp", "sub"]

Keys = Mapping[str, jwt.PyJWK]
"""Public key by kid. The key `NO_KID` is for the only key of a set, if it has no kid."""
NO_KID: Final = ""
"""Key for a missing kid, which is optional (RFC 7517, 4.5). A set with one key needs none."""


class Refusal(NamedTuple):
    """Reason why a token proves no identity. ``is_stranger``: the issuer may have made its key recently."""

    why: Unproven
    is_stranger: bool = False


_STRANGER: Final = Refusal(Unproven("unknown-token", "that token is signed by no key of the issuer"), is_stranger=True)


def is_jwt(token: str) -> bool:
    """Return whether a token looks like a JWT. Tokens of the file of accounts do not, or are found there first."""
    return token.count(".") == 2 and len(token) <= _TOKEN_BYTES


def keys_of(document: object) -> dict[str, jwt.PyJWK]:
    """Return the public keys of a JWK set that sign in an algorithm of `ALGORITHMS`. Others are ignored.

    Raises:
        ValueError: The document is not a JWK set.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")
    found: dict[str, jwt.PyJWK] = {}
    nameless: list[jwt.PyJWK] = []
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        kid = entry.get("kid")
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if key.algorithm_name not in ALGORITHMS:
            continue
        if kid is None:
            nameless.append(key)
        elif isinstance(kid, str):
            found[kid] = key
    if len(nameless) == 1 and not found:
        found[NO_KID] = nameless[0]
    elif nameless and not found:
        raise ValueError(f"it has {len(nameless)} keys without a kid: a token cannot say which of them signed it")
    return found


def identify_token(token: str, keys: Keys, settings: OidcSettings) -> tuple[Identity, float] | Refusal:
    """Identify the holder of a token. Return the end of its validity, too, in seconds since the epoch.

    Args:
        token: JWT in its compact form.
        keys: Keys of the issuer.
        settings: Settings of the operator.
    """
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        return _bad("that token is not a JWT")
    key = _key(keys, kid)
    if key is None:
        return _STRANGER
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=LEEWAY_S,
            options={"require": _REQUIRED},
        )
    except jwt.ExpiredSignatureError:
        return Refusal(Unproven("expired-token", "that token has expired"))
    except jwt.InvalidSignatureError as error:
        return _bad(_why(error)) if isinstance(kid, str) and kid in keys else _STRANGER
    except jwt.PyJWTError as error:
        return _bad(_why(error))
    user = USER_PREFIX + claims["sub"][:200].encode("utf-8", "replace").decode()
    role = _role(claims, settings.role_claim)
    if role is None:
        roles = ", ".join(ROLE_PREFIX + one.word for one in Role)
        return Refusal(Unproven("no-role", f"{user}: the claim {settings.role_claim} names none of {roles}", user))
    return Identity(user, role, "token"), float(claims["exp"]) + LEEWAY_S


def _key(keys: Keys, kid: object) -> jwt.PyJWK | None:
    """Return the key that a token names. If either side names no key, return the only key."""
    found = keys.get(kid) if isinstance(kid, str) else None
    if found is None and (NO_KID in keys or (kid is None and len(keys) == 1)):
        return next(iter(keys.values()))
    return found


def _bad(why: str) -> Refusal:
    return Refusal(Unproven("bad-token", why))


def _why(error: jwt.PyJWTError) -> str:
    """Return why a token is invalid, without its contents."""
    if isinstance(error, jwt.InvalidAudienceError):
        return "that token is for another audience (aud)"
    if isinstance(error, jwt.InvalidIssuerError):
        return "that token is from another issuer (iss)"
    if isinstance(error, jwt.ImmatureSignatureError):
        return "that token is not valid yet (nbf, iat)"
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"that token has no {error.claim}"
    if isinstance(error, jwt.InvalidSignatureError):
        return "that token's signature does not match"
    return "that token is not a JWT of this issuer"


def _role(claims: Mapping[str, Any], path: str) -> Role | None:
    """Return the highest role that a claim names."""
    value = _at(claims, path)
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return max((role for role in Role if ROLE_PREFIX + role.word in words), default=None)


def _at(claims: object, path: str) -> object:
    """Return the value at a path. A name may have dots, so the longest part of the path that is a name counts."""
    if not isinstance(claims, Mapping):
        return None
    if claims.get(path) is not None:
        return claims[path]
    end = len(path)
    while (end := path.rfind(".", 0, end)) > 0:
        found = _at(claims.get(path[:end]), path[end + 1 :])
        if found is not None:
            return found
    return None

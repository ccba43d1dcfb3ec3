# SPDX-License-Identifier: Apache-2.0
"""Decision whether a request is permitted. A pure function without I/O and without a clock."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from security.identity import Identity, Unproven
from security.roles import Role

ROLE_CLAIM: Final = "scope"


class OidcSettings(NamedTuple):
    """Settings that an operator has chosen.

    Attributes:
        issuer: URL of the issuer, the `iss` of its tokens.
        audience: `aud` of the tokens for routelake.
        role_claim: Claim with the roles: words separated by blanks, or a list. Dots lead into objects. A name may have
            dots itself, and the longest name that exists counts.
    """

    issuer: str
    audience: str
    role_claim: str = ROLE_CLAIM


def is_safe(url: str) -> bool:
    """Return whether no third party can intercept requests to a URL: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))


class AuthMode(StrEnum):
    """Mode of access control: the consequence of a missing permission."""

    OFF = "off"
    """No sender is authenticated."""
    AUDIT = "audit"
    """No request is refused. Requests that `enforce` would refuse are counted and logged."""
    ENFORCE_WRITES = "enforce-writes"
    """Requests that need more than a reader are refused. Reads that `enforce` would refuse are counted and logged."""
    ENFORCE = "enforce"
    """Every request needs an account."""


class Policy(NamedTuple):
    """Policy that an operator has chosen.

    Attributes:
        mode: Mode of access control.
        admin_plaintext: Accept an admin's signature over plain TCP, too. An interceptor could delete every route.
        require_tls: Accept signatures and tokens only over TLS.
        oidc: Issuer of JWTs that are accepted over HTTP, too. None: no JWT is accepted.
        admin_signature: Accept an admin's signature over TLS without a proof by the connection. A broker that gets
            the same request from the admin could delete every route. `admin_plaintext` implies it.
    """

    mode: AuthMode = AuthMode.OFF
    admin_plaintext: bool = False
    require_tls: bool = False
    oidc: OidcSettings | None = None
    admin_signature: bool = False


class Claim(NamedTuple):
    """A broker that a request speaks for.

    Attributes:
        cluster: Cluster that the request names. None if it names none.
        broker_name: Broker name that the request names.
        current_cluster: Cluster that has this brokerName now. None if no cluster has it. A name in another cluster
            belongs to another broker.
    """

    cluster: str | None
    broker_name: str | None
    current_cluster: str | None = None


class Verdict(NamedTuple):
    """Decision on a request.

    Attributes:
        is_refused: Whether the request is refused.
        reason: Value of `REASONS`, also if only another mode would refuse the request. "" if no mode would refuse it.
        remark: Missing permission, as text for people without secrets.
    """

    is_refused: bool
    reason: str = ""
    remark: str = ""


PASSES: Final = Verdict(False)

REASONS: Final = (
    "unknown-request", "anonymous", "unknown-key", "bad-signature", "other-fields", "two-accounts", "unknown-token",
    "bad-token", "expired-token", "no-role", "plaintext", "signature-alone", "role", "bound",
)  # fmt: skip


def authorize(
    policy: Policy,
    needed: Role | None,
    found: Identity | Unproven,
    claims: Iterable[Claim] = (),
    *,
    is_tls: bool,
) -> Verdict:
    """Decide whether a request may pass.

    Args:
        policy: Policy of the operator.
        needed: Lowest role that may send the request. None: no role may send it.
        found: Sender of the request, or the reason why it has no identity.
        claims: Brokers that the request speaks for.
        is_tls: Whether the connection is encrypted.
    """
    mode = policy.mode
    if mode is AuthMode.OFF:
        return PASSES
    objection = _objection(policy, needed, found, claims, is_tls)
    if objection is None:
        return PASSES
    reason, remark = objection
    is_open = mode is AuthMode.AUDIT or (mode is AuthMode.ENFORCE_WRITES and needed is Role.READER)
    return Verdict(not is_open, reason, remark)


def _objection(
    policy: Policy,
    needed: Role | None,
    found: Identity | Unproven,
    claims: Iterable[Claim],
    is_tls: bool,
) -> tuple[str, str] | None:
    """Return the first reason to reject the request, as reason and remark, or None."""
    if needed is None:
        return "unknown-request", "no role may send this request to a NameServer"
    if isinstance(found, Unproven):
        return found.reason, found.remark
    role = found.role
    plaintext = None if is_tls else _plaintext(policy, found)
    if plaintext is not None:
        return "plaintext", plaintext
    if role is Role.ADMIN and found.by == "signature" and not (policy.admin_signature or policy.admin_plaintext):
        return "signature-alone", (
            f"{found.user} is an admin: its signature alone is not accepted, because a broker may have seen it. "
            "Connect with the account's certificate or from its whiteRemoteAddress (--auth-admin-signature accepts it "
            "nevertheless)"
        )
    if role < needed:
        return "role", f"{found.user} is a {role.word}: this needs the role {needed.word}"
    if role is Role.BROKER and found.is_bound:
        for claim in claims:
            foreign = _foreign(found, claim)
            if foreign is not None:
                return "bound", f"{found.user} is bound to other brokers: {foreign}"
    return None


def _plaintext(policy: Policy, identity: Identity) -> str | None:
    """Return why a proof does not count over an unencrypted connection, or None."""
    if identity.by == "signature" and identity.role is Role.ADMIN and not policy.admin_plaintext:
        return (
            f"{identity.user} is an admin, and its signature was sent without TLS. Use TLS, with the account's "
            "certificate or from its whiteRemoteAddress. Change this key, because a reader of the network traffic can "
            "send the request again (--auth-admin-plaintext accepts it nevertheless)"
        )
    if policy.require_tls and identity.by in ("signature", "token"):
        why = "--auth-require-tls, the default with a certificate"
        return f"{identity.user}: signatures and tokens are accepted over TLS only ({why})"
    return None


def _foreign(identity: Identity, claim: Claim) -> str | None:
    """Return the part of a claim that the identity is not bound to, or None."""
    if identity.broker_names and claim.broker_name not in identity.broker_names:
        return f"not to brokerName {_shown(claim.broker_name)}"
    if identity.clusters:
        if claim.cluster is not None and claim.cluster not in identity.clusters:
            return f"not to cluster {_shown(claim.cluster)}"
        if claim.current_cluster is not None and claim.current_cluster not in identity.clusters:
            return f"brokerName {_shown(claim.broker_name)} belongs to cluster {_shown(claim.current_cluster)}"
        if claim.cluster is None and claim.current_cluster is None:
            return f"no cluster has a brokerName {_shown(claim.broker_name)}"
    return None


def _shown(name: str | None) -> str:
    """Return a name that a peer has chosen, short and on one line."""
    return "null" if name is None else repr(name[:64])

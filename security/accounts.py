# SPDX-License-Identifier: Apache-2.0
"""Accounts: who there is, by which proofs, and what each may do. `security.accounts_file` reads them from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from security.addresses import Matches, address_of
from security.identity import ANONYMOUS, Identity, Shown, Unproven
from security.roles import Role
from security.signature import ACCESS_KEY, SIGNATURE, is_signed_by


class Account(NamedTuple):
    """One account.

    Attributes:
        user: Its accessKey, which is its name, too.
        role: What it may do.
        clusters: That a broker may speak for; empty: any.
        broker_names: Likewise.
        secret_key: It signs with this; None: it cannot sign.
        token_digest: SHA-256 of its bearer token; None: it has none.
        token_expires_s: Seconds since the epoch from which on the token counts no more; None: never.
        certificates: Names of client certificates that are its own, as `schemas.tls.certificate_names` gives them.
        white: Where it needs no signature.
    """

    user: str
    role: Role
    clusters: frozenset[str] = frozenset()
    broker_names: frozenset[str] = frozenset()
    secret_key: str | None = None
    token_digest: bytes | None = None
    token_expires_s: float | None = None
    certificates: tuple[str, ...] = ()
    white: Matches | None = None

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Account({self.user!r}, {self.role.word})"

    def identity(self, by: Shown) -> Identity:
        """Who somebody is that has shown to be this."""
        return Identity(self.user, self.role, self.clusters, self.broker_names, by)


GLOBAL_USER: Final = "globalWhiteRemoteAddresses"
"""The name under which those act whom an address alone lets in."""


class Accounts:
    """All accounts of a moment. Never changes."""

    def __init__(
        self, accounts: Iterable[Account] = (), white: Iterable[Matches] = (), white_role: Role = Role.BROKER
    ) -> None:
        """Take accounts in.

        Args:
            accounts: They; names, tokens and certificates are different.
            white: Addresses that need no account.
            white_role: The role of who comes from there.
        """
        self.accounts: Final[Mapping[str, Account]] = {account.user: account for account in accounts}
        found = self.accounts.values()
        self._by_certificate = {name: account for account in found for name in account.certificates}
        self._by_digest = {a.token_digest: a for a in found if a.token_digest is not None}
        self._by_address = [a for a in found if a.white is not None and a.secret_key is None]
        self._white = tuple(white)
        self._white_identity = Identity(GLOBAL_USER, white_role, by="address")

    def by_signature(self, fields: Mapping[str, str], body: bytes, host: str) -> Identity | Unproven | None:
        """Who has signed a request; from a `white` address of its account it need not be signed (as in RocketMQ).

        Args:
            fields: Its extFields.
            body: Raw.
            host: IP address of the other end.

        Returns:
            None where it names nobody.
        """
        user = fields.get(ACCESS_KEY)
        if not user:
            return None
        account = self.accounts.get(user)
        if account is None or account.secret_key is None:
            return Unproven("unknown-key", f"AccessKey {user[:64]!r} is not known here")
        address = None if account.white is None else address_of(host)
        is_white = address is not None and account.white is not None and account.white(address)
        if is_white and account.role is Role.ADMIN:  # whose signature shows less: others may have heard it
            return account.identity("address")
        if is_signed_by(account.secret_key, fields, body):
            return account.identity("signature")
        if is_white:
            return account.identity("address")
        why = "does not match: another secretKey, or changed on its way" if fields.get(SIGNATURE) else "is missing"
        return Unproven("bad-signature", f"Signature of AccessKey {user[:64]!r} {why}", user)

    def by_certificate(self, names: Iterable[str]) -> Identity | Unproven | None:
        """Whose verified client certificate has these names; None where no account has any of them."""
        found = {account.user: account for name in names if (account := self._by_certificate.get(name)) is not None}
        if len(found) > 1:
            users = " and ".join(sorted(found))
            return Unproven("two-accounts", f"the client certificate has names of {users}: use one for each account")
        return next((account.identity("certificate") for account in found.values()), None)

    def by_address(self, host: str) -> Identity | None:
        """Who is at an address: the first account there that has no secretKey, or whoever needs no account."""
        if not self._by_address and not self._white:
            return None
        address = address_of(host)
        if address is None:
            return None
        for account in self._by_address:
            if account.white is not None and account.white(address):
                return account.identity("address")
        return self._white_identity if any(matches(address) for matches in self._white) else None

    def by_token(self, token: bytes, now_s: float) -> Identity | Unproven:
        """Whose bearer token it is.

        Args:
            token: As sent.
            now_s: Seconds since the epoch.
        """
        found = self._by_digest.get(digest_of(token))  # what the time of this tells of a digest is of no use
        if found is None:
            return Unproven("unknown-token", "that token is not known here")
        if found.token_expires_s is not None and now_s >= found.token_expires_s:
            return Unproven("expired-token", f"the token of {found.user} has expired", found.user)
        return found.identity("token")


def identify(
    accounts: Accounts, fields: Mapping[str, str] | None, body: bytes, host: str, otherwise: Identity | Unproven | None
) -> Identity | Unproven:
    """Who sends a request over remoting: by its signature, else by what its connection shows.

    A signature that is wrong is not made good by anything; an AccessKey that is not known here, which may be meant for
    brokers, is as good as none. If the connection shows the admin who has signed, too, that is the proof that counts:
    nobody else can send over that connection what they have heard.

    Args:
        accounts: Of the moment.
        fields: The request's extFields.
        body: Raw.
        host: IP address of the other end.
        otherwise: Who the connection is: `by_certificate`, else `by_address`.
    """
    by_signature = accounts.by_signature(fields, body, host) if fields else None
    if isinstance(by_signature, Identity):
        if by_signature.role is Role.ADMIN and isinstance(otherwise, Identity) and otherwise.user == by_signature.user:
            return otherwise
        return by_signature
    if by_signature is not None and by_signature.reason == "bad-signature":
        return by_signature
    return otherwise or by_signature or ANONYMOUS


def digest_of(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.strip()).digest()

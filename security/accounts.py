# SPDX-License-Identifier: Apache-2.0
"""Accounts: their names, proofs and permissions. `security.accounts_file` reads them from a file.

whiteRemoteAddress has RocketMQ's own forms of a rule:

- ``10.0.0.1``, ``::1``
- ``*``, ``*.*.*.*``, ``*:*:*:*:*:*:*:*`` (all addresses)
- a number or a range of numbers in the last places: ``10.0.3-5.*``, ``10.0.0.1-9``
- several addresses: ``10.0.0.{1,2}`` or ``10.0.0.1,10.0.0.2``
- the same for IPv6, with ``:``

routelake adds one form: a network, ``10.0.0.0/8``. A peer that comes over IPv6 with an embedded IPv4 address
(::ffff:10.0.0.1) has that IPv4 address.

Source (4.9.8): org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory, org.apache.rocketmq.acl.common.AclUtils.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from security.identity import ANONYMOUS, Identity, Shown, Unproven
from security.roles import Role
from security.signature import ACCESS_KEY, SIGNATURE, is_signed_by

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Matches = Callable[[Address], bool]

_ALL: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


def address_of(host: str) -> Address | None:
    """Return an address as the rules compare it. None without an address (a socket may have none)."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def rule(text: str) -> Matches:
    """Parse an address rule to a function that matches addresses.

    Raises:
        ValueError: The rule has another form. The text names the expected forms.
    """
    given = text.strip()
    if given in _ALL:
        return lambda _: True
    try:
        if "/" in given:
            network = ipaddress.ip_network(given, strict=False)
            return lambda address: address.version == network.version and address in network
        if given.endswith("}"):
            head, _, last = given[:-1].partition("{")
            if not head.endswith((".", ":")):
                raise ValueError
            return _any_of([head + part.strip() for part in last.split(",")])
        if "," in given:
            return _any_of([part.strip() for part in given.split(",")])
        if "*" in given or "-" in given:
            return _ranges(given)
        return _any_of([given])
    except ValueError:
        raise ValueError(
            f"{text!r} is not an address rule: expected 10.0.0.1, 10.0.0.*, 10.0.1-9.*, 10.0.0.{{1,2}}, 10.0.0.0/8 or *"
        ) from None


def _any_of(texts: list[str]) -> Matches:
    wanted = frozenset(ipaddress.ip_address(text) for text in texts)
    return lambda address: address in wanted


def _ranges(text: str) -> Matches:
    """Parse a rule with ranges in its last places. `*` is the range of all numbers."""
    is_v6 = ":" in text
    parts = text.split(":" if is_v6 else ".")
    base, highest = (16, 0xFFFF) if is_v6 else (10, 255)
    if len(parts) != (8 if is_v6 else 4):
        raise ValueError
    bounds = [_range(part.strip(), base, highest) for part in parts]

    def matches(address: Address) -> bool:
        if (address.version == 6) is not is_v6:
            return False
        packed = address.packed
        step = 2 if is_v6 else 1
        numbers = [int.from_bytes(packed[at : at + step]) for at in range(0, len(packed), step)]
        return all(low <= number <= high for number, (low, high) in zip(numbers, bounds, strict=True))

    return matches


def _range(part: str, base: int, highest: int) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    first, dash, last = part.partition("-")
    low = int(first, base)
    high = int(last, base) if dash else low
    if not 0 <= low <= high <= highest or not first.isalnum() or (dash and not last.isalnum()):
        raise ValueError
    return low, high


class Account(NamedTuple):
    """One account.

    Attributes:
        user: AccessKey and name of the account.
        role: Role, which decides about permissions.
        clusters: Clusters that a broker may speak for. Empty: any.
        broker_names: Broker names that a broker may speak for. Empty: any.
        secret_key: Key for its signatures. None: it cannot sign.
        token_digest: SHA-256 of its bearer token. None: it has no token.
        token_expires_s: Time from which on the token is invalid, in seconds since the epoch. None: never.
        certificates: Names of its client certificates, as `schemas.tls.certificate_names` gives them.
        white: Match of the addresses that need no signature. None: every address needs one.
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
        """Return a text without the account's secrets."""
        return f"Account({self.user!r}, {self.role.word})"

    def identity(self, by: Shown) -> Identity:
        """Return the identity of a peer that has proved to be this account."""
        return Identity(self.user, self.role, by, self.clusters, self.broker_names)


GLOBAL_USER: Final = "globalWhiteRemoteAddresses"
"""User name of peers that are identified by their address alone."""


class Accounts:
    """All accounts at one time. It never changes."""

    def __init__(
        self, accounts: Iterable[Account] = (), white: Iterable[Matches] = (), white_role: Role = Role.BROKER
    ) -> None:
        """Index the accounts.

        Args:
            accounts: Accounts. Names, tokens and certificates are unique.
            white: Addresses that need no account.
            white_role: Role of peers at these addresses.
        """
        self.accounts: Final[Mapping[str, Account]] = {account.user: account for account in accounts}
        found = self.accounts.values()
        self._by_certificate = {name: account for account in found for name in account.certificates}
        self._by_digest = {a.token_digest: a for a in found if a.token_digest is not None}
        self._by_address = [a for a in found if a.white is not None and a.secret_key is None]
        self._white = tuple(white)
        self._white_identity = Identity(GLOBAL_USER, white_role, "address")

    def by_signature(self, fields: Mapping[str, str], body: bytes, host: str) -> Identity | Unproven | None:
        """Identify the signer of a request.

        From a `white` address of its account, a request need not be signed (as in RocketMQ).

        Args:
            fields: The request's extFields.
            body: The request's raw body.
            host: IP address of the peer.

        Returns:
            Identity, or the reason why there is no identity. None if the request names no AccessKey.
        """
        user = fields.get(ACCESS_KEY)
        if not user:
            return None
        account = self.accounts.get(user)
        if account is None or account.secret_key is None:
            return Unproven("unknown-key", f"AccessKey {user[:64]!r} is not known here")
        address = None if account.white is None else address_of(host)
        is_white = address is not None and account.white is not None and account.white(address)
        if is_white and account.role is Role.ADMIN:  # a signature proves less, because others may have seen it
            return account.identity("address")
        if is_signed_by(account.secret_key, fields, body):
            return account.identity("signature")
        if is_white:
            return account.identity("address")
        why = "does not match: another secretKey, or changed on its way" if fields.get(SIGNATURE) else "is missing"
        return Unproven("bad-signature", f"Signature of AccessKey {user[:64]!r} {why}", user)

    def by_certificate(self, names: Iterable[str]) -> Identity | Unproven | None:
        """Identify the account of a verified client certificate by its names. None if there is no such account."""
        found = {account.user: account for name in names if (account := self._by_certificate.get(name)) is not None}
        if len(found) > 1:
            users = " and ".join(sorted(found))
            return Unproven("two-accounts", f"the client certificate has names of {users}: use one for each account")
        return next((account.identity("certificate") for account in found.values()), None)

    def by_address(self, host: str) -> Identity | None:
        """Identify a peer by its address: the first account without secretKey for it, or an address without account."""
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
        """Identify the account that has a bearer token.

        Args:
            token: The token as sent.
            now_s: Current time, in seconds since the epoch.
        """
        found = self._by_digest.get(digest_of(token))  # the time of the look-up leaks nothing useful about a digest
        if found is None:
            return Unproven("unknown-token", "that token is not known here")
        if found.token_expires_s is not None and now_s >= found.token_expires_s:
            return Unproven("expired-token", f"the token of {found.user} has expired", found.user)
        return found.identity("token")


def identify(
    accounts: Accounts, fields: Mapping[str, str] | None, body: bytes, host: str, otherwise: Identity | Unproven | None
) -> Identity | Unproven:
    """Identify the sender of a request over remoting by its signature, or else by its connection.

    A wrong signature is always refused. An unknown AccessKey counts as none, because it may be meant for brokers. If
    the connection identifies the admin that has signed, too, the identity of the connection counts: other peers that
    have seen the signature cannot send over that connection.

    Args:
        accounts: Accounts that are valid now.
        fields: The request's extFields.
        body: The request's raw body.
        host: IP address of the peer.
        otherwise: Identity of the connection: `by_certificate`, or else `by_address`.
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
    """Return the digest that is stored instead of a token."""
    return hashlib.sha256(token.strip()).digest()


HASHED: Final = "sha256:"
"""Prefix of a token that is given by its digest."""


def written_digest(text: str) -> bytes:
    """Return the digest of a token that is written as it is, or as ``sha256:`` and the digest in hexadecimal.

    Raises:
        ValueError: The text after ``sha256:`` is not a digest.
    """
    if not text.startswith(HASHED):
        return digest_of(text.encode())
    digits = text.removeprefix(HASHED)
    if not _HEX_DIGEST.fullmatch(digits):
        raise ValueError("is not a SHA-256 digest: expected sha256: and 64 hexadecimal digits")
    return bytes.fromhex(digits)


_HEX_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")

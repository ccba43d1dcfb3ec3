# SPDX-License-Identifier: Apache-2.0
"""Identity of a peer and its proof, or the reason why a proof failed."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from security.roles import Role

Shown = Literal["signature", "certificate", "address", "token"]
"""Kind of proof of an identity."""


class Identity(NamedTuple):
    """Identity of a peer, from its account. For a peer without an account see `Unproven`.

    Attributes:
        user: Name of the account.
        role: Role of the account.
        by: Kind of proof.
        clusters: Clusters that a broker may speak for. Empty: any.
        broker_names: Broker names that a broker may speak for. Empty: any.
    """

    user: str
    role: Role
    by: Shown
    clusters: frozenset[str] = frozenset()
    broker_names: frozenset[str] = frozenset()

    @property
    def is_bound(self) -> bool:
        """Return whether the peer may speak only for some brokers."""
        return bool(self.clusters or self.broker_names)


class Unproven(NamedTuple):
    """Failed proof of an identity.

    Attributes:
        reason: Value of a fixed set, which becomes the label of a metric.
        remark: Text for people, without secrets.
        user: Account that the peer claims to be, if it exists.
    """

    reason: str
    remark: str
    user: str | None = None


ANONYMOUS: Final = Unproven("anonymous", "not authenticated: send AccessKey and Signature, or a client certificate")

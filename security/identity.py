# SPDX-License-Identifier: Apache-2.0
"""Identity of a peer and its proof, or the reason why a proof failed."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from security.roles import Role

Shown = Literal["signature", "certificate", "address", "token", "nobody"]
"""Kind of proof of an identity."""


class Identity(NamedTuple):
    """Identity of a peer, from its account.

    Attributes:
        user: The account's name; None without an account.
        role: The account's role; None without an account.
        clusters: Clusters that a broker may speak for; empty: any.
        broker_names: Broker names that a broker may speak for; empty: any.
        by: Kind of proof.
    """

    user: str | None
    role: Role | None
    clusters: frozenset[str] = frozenset()
    broker_names: frozenset[str] = frozenset()
    by: Shown = "nobody"

    @property
    def is_bound(self) -> bool:
        """Return whether the peer may speak for some brokers only."""
        return bool(self.clusters or self.broker_names)


NOBODY: Final = Identity(None, None)


class Unproven(NamedTuple):
    """Failed proof of an identity.

    Attributes:
        reason: Value of a fixed set: it becomes a metric's label.
        remark: Text for a person; holds no secret.
        user: Account that the peer claims to be, if it exists.
    """

    reason: str
    remark: str
    user: str | None = None


ANONYMOUS: Final = Unproven("anonymous", "not authenticated: send AccessKey and Signature, or a client certificate")

# SPDX-License-Identifier: Apache-2.0
"""Who somebody is, and how that was shown; or why it was not."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from security.roles import Role

Shown = Literal["signature", "certificate", "address", "token", "nobody"]
"""What showed it."""


class Identity(NamedTuple):
    """Somebody, as far as an account says.

    Attributes:
        user: The account's name; None for nobody.
        role: Likewise.
        clusters: That a broker may speak for; empty: any.
        broker_names: Likewise.
        by: What showed it.
    """

    user: str | None
    role: Role | None
    clusters: frozenset[str] = frozenset()
    broker_names: frozenset[str] = frozenset()
    by: Shown = "nobody"

    @property
    def is_bound(self) -> bool:
        """Whether it may speak for some brokers only."""
        return bool(self.clusters or self.broker_names)


NOBODY: Final = Identity(None, None)


class Unproven(NamedTuple):
    """What somebody offered as a proof, and is none.

    Attributes:
        reason: One of a fixed set: it becomes a metric's label.
        remark: For a person; holds no secret.
        user: Whom it claims to be, if there is such an account.
    """

    reason: str
    remark: str
    user: str | None = None


ANONYMOUS: Final = Unproven("anonymous", "who are you? send AccessKey and Signature, or a client certificate")

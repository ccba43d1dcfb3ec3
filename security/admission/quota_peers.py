# SPDX-License-Identifier: Apache-2.0
"""Who somebody is to the quotas."""

from __future__ import annotations

from remoting.codec.bounds import address_of
from schemas.events import Actor


def peer_name(actor: Actor) -> str:
    """Who somebody is to the quotas: the user, else the address."""
    if actor.user is not None:
        return user_name(actor.user)
    return address_of((actor.peer or "").rpartition(":")[0].strip("[]"))


def user_name(user: str) -> str:
    """`peer_name` of a user: no address."""
    return f"user {user}"

# SPDX-License-Identifier: Apache-2.0
"""Who somebody is to the HTTP API, and what that allows."""

from __future__ import annotations

from typing import NamedTuple


class AuthContext(NamedTuple):
    """Who somebody is here, and what that allows.

    Attributes:
        user: None for nobody that is known.
        may_read: Whether reads pass.
        may_write: Whether everything does.
        takes_tokens: Whether there are tokens that would make a difference.
    """

    user: str | None
    may_read: bool
    may_write: bool
    takes_tokens: bool

# SPDX-License-Identifier: Apache-2.0
"""What a write was charged, to be given back if it came to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple


class Reservation(NamedTuple):
    """What a write was charged.

    Attributes:
        quota: Of which the bytes are.
        who: Whose.
        cost: Bytes.
        least: Of them, what it takes on the log, even if it changes nothing.
        names: New ones.
        registered: A brokerName that was counted, and the token of its reservation (`security.admission.usage`).
        coming: Names that count as there, until the view shows them, and where they do.
        rewritten: Partitions that it has written anew.
    """

    quota: str
    who: str
    cost: int
    least: int
    names: int = 0
    registered: tuple[str, int] | None = None
    coming: tuple[Counter[str], Collection[str]] | None = None
    rewritten: tuple[str, ...] = ()

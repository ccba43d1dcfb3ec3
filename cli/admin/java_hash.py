# SPDX-License-Identifier: Apache-2.0
"""The iteration order of Java's HashMap and HashSet. Pure.

Stock mqadmin visits the brokers of a cluster, and joins order configurations and attributes, in this order. routelake
uses the same order in order to send the same requests.

Sources: java.util.HashMap (hash, resize, DEFAULT_LOAD_FACTOR), java.lang.String.hashCode, java.lang.Long.hashCode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

K = TypeVar("K", str, int)

_INITIAL_CAPACITY: Final = 16


def hash_order(keys: Iterable[K]) -> list[K]:
    """Return keys in the order of a HashMap to which they were added one by one.

    Args:
        keys: Texts, or longs from zero up, in the order of insertion. A repeated key counts once.
    """
    unique = list(dict.fromkeys(keys))
    capacity = _INITIAL_CAPACITY
    while len(unique) * 4 > capacity * 3:
        capacity *= 2
    # The keys of one bucket keep the order of insertion, even if the table grows. sorted() is stable.
    return sorted(unique, key=lambda key: _spread(key) & (capacity - 1))


def _spread(key: str | int) -> int:
    hashed = (key ^ (key >> 32)) & 0xFFFFFFFF if isinstance(key, int) else _string_hash(key)
    return hashed ^ (hashed >> 16)


def _string_hash(text: str) -> int:
    raw = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(raw), 2):
        hashed = (31 * hashed + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    return hashed

# SPDX-License-Identifier: Apache-2.0
"""A cache that forgets what was not used for longest, by bytes."""

from __future__ import annotations

from runtime.bounded import ENTRY_BYTES, BoundedCache


def test_the_least_recently_used_entry_is_removed() -> None:
    cache: BoundedCache[str, int] = BoundedCache(3 * (ENTRY_BYTES + 100))
    for number, key in enumerate("abc"):
        assert cache.put(key, number, 100)
    assert cache.get("a") == 0
    assert cache.put("d", 3, 100)
    assert (cache.get("b"), len(cache)) == (None, 3)
    assert cache.put("e", 4, 100 + ENTRY_BYTES + 100)
    assert (cache.get("c"), cache.get("a"), cache.get("d")) == (None, None, 3)
    assert cache.bytes == 3 * (ENTRY_BYTES + 100)


def test_pinned_entries_stay() -> None:
    cache: BoundedCache[str, int] = BoundedCache(3 * (ENTRY_BYTES + 100))
    for number, key in enumerate("abc"):
        assert cache.put(key, number, 100)
    assert cache.put("d", 3, 100, lambda value: value < 1)
    assert not cache.put("e", 4, 100, lambda value: value < 1)
    assert [cache.get(key) for key in "abcde"] == [None, 1, 2, 3, None]
    assert cache.bytes == 3 * (ENTRY_BYTES + 100)


def test_replacing_and_removing_keep_the_count() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10_000)
    cache.put("a", 1, 5_000)
    cache.put("a", 2, 10)
    assert (cache.get("a"), cache.bytes) == (2, ENTRY_BYTES + 10)
    cache.pop("a")
    cache.pop("a")
    assert (cache.bytes, len(cache)) == (0, 0)


def test_a_single_entry_beyond_the_bound_is_kept() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10)
    assert cache.put("a", 1, 1_000)
    assert cache.put("b", 2, 1_000)
    assert (cache.get("a"), cache.get("b")) == (None, 2)

# SPDX-License-Identifier: Apache-2.0
"""Names in order, however many there are and however they came to be there."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from nameserver.view import sorted_topics
from nameserver.view.sorted_topics import following, in_order

ODD = ["a", "B", "", "a%b", "%RETRY%g", "\u00fc", "\u20ac", "\U0001f600", "\ufffd"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_topics, "_PIECE", 7)


def test_names_are_sorted_as_python_sorts_them() -> None:
    for count in (0, 1, 7, 8, 500):
        names = random.Random(count).sample([*ODD, *(f"t{place}" for place in range(count))], count)
        assert in_order(names) == sorted(names)
    assert in_order([*ODD * 3, "\ud800", "\ud7ff", "\ue000"]) == sorted([*ODD * 3, "\ud800", "\ud7ff", "\ue000"])


def test_names_stay_sorted_after_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    anew: list[int] = []

    def sorted_anew(names: Collection[str]) -> list[str]:
        anew.append(len(names))
        return sorted(names)

    monkeypatch.setattr(sorted_topics, "in_order", sorted_anew)
    rng = random.Random(5)
    names = dict.fromkeys([*ODD, *(f"t{place}" for place in range(300))])
    before = sorted(names)
    for step in range(300):
        was = dict(names)
        for name in rng.sample(sorted(names), min(len(names), rng.choice((0, 0, 1, 3, 20)))):
            del names[name]
        names |= dict.fromkeys(f"{rng.choice('at~')}{rng.random()}" for _ in range(rng.choice((0, 0, 1, 3, 20))))
        another = step % 10 == 0  # another view's: in another order
        if another:
            names = dict.fromkeys(rng.sample(sorted(names), len(names)))
        anew.clear()
        after = following(before, was, names)
        assert after == sorted(names)
        assert (after is before) == (before == sorted(names) and not anew)
        assert another or not anew or 10 * len(was.keys() ^ names.keys()) > len(was)
        before = after

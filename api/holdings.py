# SPDX-License-Identifier: Apache-2.0
"""Whose the broker groups are, and how large: what was registered here, by peer.

Kept from registration to registration, so too much rather than too little: a group that has left, and topics that were
deleted, go when it is counted anew (`count`). A gateway that has just started knows nothing; brokers register within a
minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from api.quota_costs import Size
from api.view.snapshot import RouteView

_SLACK: Final = 1_000
"""Groups beyond those that there are, before the departed are forgotten."""


class Held(NamedTuple):
    """A broker group.

    Attributes:
        who: Whose it is.
        size: What it has.
        json_bytes: What its topics take as JSON.
    """

    who: str
    size: Size
    json_bytes: int


class Holdings:
    """The broker groups of one gateway, by name. One thread at a time, `count` excepted."""

    def __init__(self) -> None:
        """Nobody has anything."""
        self._groups: dict[str, Held] = {}
        self._groups_of: Counter[str] = Counter()
        self._rows_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def find(self, broker_name: str) -> Held | None:
        """A group, if it registered here."""
        return self._groups.get(broker_name)

    def of(self, who: str) -> tuple[int, int, int]:
        """A peer's groups, topics and bytes of JSON."""
        return self._groups_of[who], self._rows_of[who], self._bytes_of[who]

    def put(self, broker_name: str, held: Held, view: RouteView) -> None:
        """A group is somebody's now."""
        self._drop(broker_name)
        self._groups[broker_name] = held
        self._add(held, 1)
        if len(self._groups) > len(view.groups) + _SLACK:
            for name in [name for name in self._groups if name not in view.groups and name != broker_name]:
                self._drop(name)

    def restore(self, broker_name: str, held: Held | None) -> None:
        """A registration came to nothing: as it was before."""
        self._drop(broker_name)
        if held is not None:
            self._groups[broker_name] = held
            self._add(held, 1)

    def take(self, rows: Mapping[str, int]) -> None:
        """Go by what `count` has found."""
        for name, held in list(self._groups.items()):
            found = rows.get(name)
            self._drop(name)
            if found is not None:
                share = min(1.0, found / max(1, held.size.rows))
                self._groups[name] = held._replace(
                    size=Size(found, int(held.size.name_bytes * share)), json_bytes=int(held.json_bytes * share)
                )
                self._add(self._groups[name], 1)

    def _drop(self, broker_name: str) -> None:
        held = self._groups.pop(broker_name, None)
        if held is not None:
            self._add(held, -1)

    def _add(self, held: Held, sign: int) -> None:
        for counter, number in (
            (self._groups_of, 1),
            (self._rows_of, held.size.rows),
            (self._bytes_of, held.json_bytes),
        ):
            counter[held.who] += sign * number
            if not counter[held.who]:
                del counter[held.who]


def count(view: RouteView) -> dict[str, int]:
    """The topics of every group that a view shows. Takes a second for millions of them, in any thread."""
    times = Counter(map(id, view.topics.values()))
    rows = dict.fromkeys(view.groups, 0)
    for found in {id(found): found for found in view.topics.values()}.values():
        for broker_name in found.brokers:
            rows[broker_name] = rows.get(broker_name, 0) + times[id(found)]
    return rows


def new_rows(names: Iterable[str], broker_name: str, view: RouteView) -> tuple[int, int]:
    """How many of a registration's topics are new to its group, and how many to everybody."""
    topics, to_group, to_all = view.topics, 0, 0
    if broker_name not in view.groups:
        every = list(names)
        return len(every), len(every) - sum(map(topics.__contains__, every))
    for name in names:
        rows = topics.get(name)
        if rows is None:
            to_all += 1
        elif rows.find(broker_name) is None:
            to_group += 1
    return to_group + to_all, to_all

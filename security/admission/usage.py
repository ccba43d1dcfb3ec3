# SPDX-License-Identifier: Apache-2.0
"""Whose the broker groups are, and how large: what was registered here, by peer.

Kept from registration to registration, so too much rather than too little: a group that has left, topics that were
deleted, and a registration that came to nothing go when it is counted anew (`count`), static topic mappings with their
group. A gateway that has just started
knows nothing; brokers register within a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from nameserver.view.snapshot import RouteView
from schemas.broker import MASTER_ID
from schemas.events import RegisterBroker, inflated_bytes
from security.admission.write_costs import Size, mapping_rows

_SLACK: Final = 1_000
"""Groups beyond those that there are, before the departed are forgotten."""


class Held(NamedTuple):
    """A broker group.

    Attributes:
        who: Whose it is.
        brokers: Its addresses.
        size: What it has.
        mappings: Static topic mappings and their queues.
        json_bytes: What its registrations take as JSON.
    """

    who: str
    brokers: int
    size: Size
    mappings: int
    json_bytes: int

    @property
    def topics(self) -> int:
        """What it is counted for."""
        return self.size.rows + self.mappings


class Brought(NamedTuple):
    """What a registration brings.

    Attributes:
        broker_name: To which group.
        brokers: How many the group has with it.
        rows: Topics.
        told: Topics, and `mapping_rows`.
        new_rows: Topics that the group has not.
        new_mappings: Of static topic mappings and their queues, those that nobody has.
        new_names: Topics that nobody has.
        name_bytes: What all its names take, compressed.
        json_bytes: What it takes as JSON.
    """

    broker_name: str
    brokers: int
    rows: int
    told: int
    new_rows: int
    new_mappings: int
    new_names: int
    name_bytes: int
    json_bytes: int


def brought_by(
    event: RegisterBroker, names: Collection[str], payload: bytes, view: RouteView, coming: Mapping[str, int]
) -> Brought:
    """What a registration brings.

    Args:
        event: Its topics may be left out.
        names: Of its topics.
        payload: The event as the log takes it.
        view: At the head.
        coming: Topics that the view will show in a moment: many brokers bring them at once.
    """
    has_topics = event.broker_id == MASTER_ID or event.enable_acting_master is not None
    new_rows, new_names = _new(names, event.broker_name, view) if has_topics else (0, 0)
    if new_names:
        topics = view.topics
        new_names = sum(name not in topics and not coming.get(name) for name in names)
    live = view.live_rows(event.broker_name)
    return Brought(
        event.broker_name,
        len(live) + ((event.cluster_name, event.broker_addr) not in live),
        len(names),
        len(names) + mapping_rows(event),
        new_rows,
        _new_mappings(event, view),
        new_names,
        len(payload),
        inflated_bytes(payload) or 0,
    )


class Holdings:
    """The broker groups of one gateway, by name. One thread at a time, `count` excepted."""

    def __init__(self) -> None:
        """Nobody has anything."""
        self._groups: dict[str, Held] = {}
        self._brokers_of: Counter[str] = Counter()
        self._rows_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def find(self, broker_name: str) -> Held | None:
        """A group, if it registered here."""
        return self._groups.get(broker_name)

    def without(self, who: str, broker_name: str) -> tuple[int, int, int]:
        """A peer's brokers, topics and bytes of JSON, one group left out."""
        held = self._groups.get(broker_name)
        own = held if held is not None and held.who == who else None
        brokers, rows, json_bytes = self._brokers_of[who], self._rows_of[who], self._bytes_of[who]
        if own is None:
            return brokers, rows, json_bytes
        return brokers - own.brokers, rows - own.topics, json_bytes - own.json_bytes

    def after(self, who: str, brought: Brought, *, is_new: bool) -> Held:
        """A group as it will be.

        Args:
            who: Whose it will be.
            brought: By its registration.
            is_new: Whether nobody has such a group.
        """
        before = self._groups.get(brought.broker_name)
        if before is None or is_new:  # what a group had before this gateway knew it, it brings again
            size = Size(brought.rows, brought.name_bytes)
            return Held(who, brought.brokers, size, brought.new_mappings, brought.json_bytes)
        rows = max(brought.rows, before.size.rows + brought.new_rows)
        share = min(1.0, (brought.new_rows + brought.new_mappings) / max(1, brought.told))
        name_bytes = max(brought.name_bytes, before.size.name_bytes + int(brought.name_bytes * share))
        json_bytes = max(brought.json_bytes, before.json_bytes + int(brought.json_bytes * share))
        mappings = before.mappings + brought.new_mappings
        return Held(who, brought.brokers, Size(rows, name_bytes), mappings, json_bytes)

    def take(self, broker_name: str, held: Held, view: RouteView) -> None:
        """A group is somebody's now.

        Args:
            broker_name: Its name.
            held: What it has (`after`).
            view: At the head.
        """
        self._set(broker_name, held)
        if len(self._groups) > len(view.groups) + _SLACK:
            for other in self._groups.keys() - view.groups.keys() - {broker_name}:
                self._set(other, None)

    def recount(self, rows: Mapping[str, int]) -> None:
        """Go by what `count` has found."""
        for name, held in [*self._groups.items()]:
            self._set(name, _counted(held, rows.get(name)))

    def _set(self, broker_name: str, held: Held | None) -> None:
        before = self._groups.pop(broker_name, None)
        if before is not None:
            self._add(before, -1)
        if held is not None:
            self._groups[broker_name] = held
            self._add(held, 1)

    def _add(self, held: Held, sign: int) -> None:
        for counter, number in (
            (self._brokers_of, held.brokers),
            (self._rows_of, held.topics),
            (self._bytes_of, held.json_bytes),
        ):
            counter[held.who] += sign * number
            if not counter[held.who]:
                del counter[held.who]


def _counted(held: Held | None, rows: int | None) -> Held | None:
    if held is None or rows is None:
        return None
    share = min(1.0, rows / max(1, held.size.rows))
    return held._replace(size=Size(rows, int(held.size.name_bytes * share)), json_bytes=int(held.json_bytes * share))


def count(view: RouteView) -> dict[str, int]:
    """The topics of every group that a view shows. Takes a second for millions of them, in any thread."""
    times = Counter(map(id, view.topics.values()))
    rows = dict.fromkeys(view.groups, 0)
    for found in {id(found): found for found in view.topics.values()}.values():
        for broker_name in found.brokers:
            rows[broker_name] = rows.get(broker_name, 0) + times[id(found)]
    return rows


def _new_mappings(event: RegisterBroker, view: RouteView) -> int:
    tables, found = view.mapping_tables, 0
    for topic, info in event.topic_queue_mapping_info_map.items():
        known = tables.get(topic)
        if known is None or info.bname not in known.by_bname:
            found += 1 + len(info.curr_id_map or ())
    return found


def _new(names: Collection[str], broker_name: str, view: RouteView) -> tuple[int, int]:
    """How many of a registration's topics are new to its group, and how many to everybody."""
    topics, to_group, to_all = view.topics, 0, 0
    if broker_name not in view.groups:
        return len(names), len(names) - sum(map(topics.__contains__, names))
    for name in names:
        rows = topics.get(name)
        if rows is None:
            to_all += 1
        elif rows.find(broker_name) is None:
            to_group += 1
    return to_group + to_all, to_all

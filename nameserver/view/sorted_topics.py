# SPDX-License-Identifier: Apache-2.0
"""Sorted topic names and numbers of topics, cached between requests, because a view may have millions of topics.

Python sorts three million names in 2.5 s, and holds the interpreter's lock meanwhile. Arrow sorts without the lock.
After that, a list follows the view by the added and removed topics.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from nameserver.view.apply import Topics
from nameserver.view.snapshot import RouteView

OFF_LOOP_TOPICS: Final = 10_000
"""Number of topics above which a loop over all of them runs outside the event loop."""
_LISTS_KEPT: Final = 8
_PIECE: Final = 10_000
"""Number of names that are processed at a time, in about a millisecond."""
_ANEW: Final = 10
"""If more than one in this many names was added or removed, it is faster to sort again."""


class SortedTopics:
    """Sorted topic names by cluster, cached while the view's tables stay the same."""

    def __init__(self) -> None:
        """Start empty."""
        self._lists: OrderedDict[str | None, tuple[object, object, Collection[str], list[str]]] = OrderedDict()

    async def get(self, view: RouteView, cluster: str | None) -> list[str]:
        """Return the names, in order."""
        kept = self._lists.get(cluster)
        if kept is not None and kept[0] is view.topics and kept[1] is view.clusters:
            return kept[3]

        def names() -> tuple[Collection[str], list[str]]:
            found: Collection[str] = view.topics if cluster is None else view.topics_in(cluster)
            return found, in_order(found) if kept is None else following(kept[3], kept[2], found)

        as_viewed, found = await asyncio.to_thread(names) if len(view.topics) > OFF_LOOP_TOPICS else names()
        if not found:
            return found  # names of missing clusters must not evict other lists
        self._lists[cluster] = (view.topics, view.clusters, as_viewed, found)
        while len(self._lists) > _LISTS_KEPT:
            self._lists.popitem(last=False)
        return found


class TopicCounts:
    """Numbers of topics by broker group, cached while the topics stay the same. Used on the event loop."""

    def __init__(self) -> None:
        """Start without numbers."""
        self._counted: tuple[Topics, asyncio.Future[dict[str, int]]] | None = None

    async def get(self, view: RouteView, broker_name: str) -> int:
        """Return the number of topics of a view that a broker group has."""
        if len(view.topics) <= OFF_LOOP_TOPICS:
            return view.topic_count(broker_name)
        counted = self._counted
        if counted is None or counted[0] is not view.topics:
            counted = self._counted = view.topics, asyncio.ensure_future(asyncio.to_thread(view.topic_counts))
        return (await asyncio.shield(counted[1])).get(broker_name, 0)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names as Python does, which is the order of their UTF-8, too."""
    pieces = list(_pieces(names))
    if len(pieces) <= 1:
        return sorted(pieces[0]) if pieces else []
    try:
        arrays = [pa.array(piece, pa.string()) for piece in pieces]
    except UnicodeEncodeError:  # half a character, which the wire may contain
        return sorted(name for piece in pieces for name in piece)
    order = pc.sort_indices(pa.chunked_array(arrays))
    found: list[str] = []
    for start in range(0, len(order), _PIECE):
        found += [pieces[index // _PIECE][index % _PIECE] for index in order.slice(start, _PIECE).to_pylist()]
    return found


def following(before: list[str], was: Collection[str], names: Collection[str]) -> list[str]:
    """Return the same as `in_order`, from a list with most of the names. Return the list itself if nothing changed.

    Args:
        before: Earlier names in order.
        was: The same names in the order of their view.
        names: Names in the order of a later view: added names are after the others, which are in the same order.
    """
    found = _steps(before, list(was), list(names))
    if found is None:  # the view is of another line
        return in_order(names)
    gone, came = found
    if not gone and not came:
        return before
    moved = [(name, 1) for name in gone] + [(name, 0) for name in came]
    steps = sorted((bisect_left(before, name), name, skipped) for name, skipped in moved)
    merged: list[str] = []
    done = 0
    for place, name, skipped in steps:
        merged += before[done:place]
        if not skipped:
            merged.append(name)
        done = place + skipped
    return merged + before[done:]


def _steps(before: list[str], was: list[str], now: list[str]) -> tuple[list[str], list[str]] | None:
    """Return removed and added names. None if the lists are not as `following` expects, or differ too much."""
    most = len(was) // _ANEW
    kept = len(now)
    while kept and not _has(before, now[kept - 1]):
        kept -= 1
        if len(now) - kept > most:
            return None
    missing = len(was) - kept
    if not 0 <= missing <= most:
        return None
    gone: list[str] = []
    start = 0
    for _ in range(missing):
        # Up to the next removed name, both are the same. After it, all names are one place further.
        shift = len(gone)
        end = bisect_left(range(kept + shift), True, start, key=lambda place: was[place] != now[place - shift])
        if was[start:end] != now[start - shift : end - shift]:
            return None
        gone.append(was[end])
        start = end + 1
    return (gone, now[kept:]) if was[start:] == now[start - missing : kept] else None


def _has(names: list[str], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


def _pieces(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, _PIECE)):
        yield piece

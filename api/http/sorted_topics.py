# SPDX-License-Identifier: Apache-2.0
"""Names of topics in order, for pages of a list, where there may be millions of them.

Python sorts three million names in 2.5 s, and nobody else runs meanwhile. Here nothing holds the interpreter for longer
than a piece takes: Arrow sorts, without the interpreter's lock, and after that a list follows the view by what came and
what went.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from api.view.snapshot import RouteView

_OFF_LOOP: Final = 10_000
_LISTS_KEPT: Final = 8
_PIECE: Final = 10_000
"""Names at a time: a millisecond."""
_ANEW: Final = 10
"""Where more than one name in so many came or went, sorting anew is quicker."""


class SortedTopics:
    """Sorted topic names by cluster, kept as long as the view's tables stay the same."""

    def __init__(self) -> None:
        """Start empty."""
        self._lists: OrderedDict[str | None, tuple[object, object, list[str]]] = OrderedDict()

    async def get(self, view: RouteView, cluster: str | None) -> list[str]:
        """The names, in order."""
        kept = self._lists.get(cluster)
        if kept is not None and kept[0] is view.topics and kept[1] is view.clusters:
            return kept[2]
        before = None if kept is None else kept[2]

        def names() -> list[str]:
            found = view.topics if cluster is None else dict.fromkeys(view.topics_in(cluster))
            return in_order(found) if before is None else following(before, found)

        found = await asyncio.to_thread(names) if len(view.topics) > _OFF_LOOP else names()
        if not found:
            return found  # names of clusters that are not there must not push out what is
        self._lists[cluster] = (view.topics, view.clusters, found)
        while len(self._lists) > _LISTS_KEPT:
            self._lists.popitem(last=False)
        return found


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted as Python sorts them, which is the order of their UTF-8, too."""
    pieces = list(_pieces(names))
    if len(pieces) <= 1:
        return sorted(pieces[0]) if pieces else []
    try:
        arrays = [pa.array(piece, pa.string()) for piece in pieces]
    except UnicodeEncodeError:  # half a character, which the wire may have in it
        return sorted(name for piece in pieces for name in piece)
    order = pc.sort_indices(pa.chunked_array(arrays))
    found: list[str] = []
    for start in range(0, len(order), _PIECE):
        found += [pieces[index // _PIECE][index % _PIECE] for index in order.slice(start, _PIECE).to_pylist()]
    return found


def following(before: list[str], names: Mapping[str, object]) -> list[str]:
    """The same as `in_order`, from a list of names most of which are still there; the list itself if all are.

    Args:
        before: In order.
        names: The keys of it.
    """
    gone = [place for place, name in enumerate(before) if name not in names]
    came = _came(before, names, len(names) - (len(before) - len(gone)))
    if not gone and not came:
        return before
    if (len(gone) + len(came)) * _ANEW > len(before):
        return in_order(names)
    steps = sorted([(place, "", 1) for place in gone] + [(bisect_left(before, name), name, 0) for name in came])
    found: list[str] = []
    done = 0
    for place, name, skipped in steps:
        found += before[done:place]
        if not skipped:
            found.append(name)
        done = place + skipped
    return found + before[done:]


def _came(before: list[str], names: Mapping[str, object], count: int) -> list[str]:
    """Those ``count`` names that were not there before."""
    last: list[str] = list(islice(reversed(names), count))  # type: ignore[arg-type]
    if not any(_has(before, name) for name in last):  # a view puts new ones behind the others
        return last
    return [name for name in names if not _has(before, name)]


def _has(names: list[str], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


def _pieces(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, _PIECE)):
        yield piece

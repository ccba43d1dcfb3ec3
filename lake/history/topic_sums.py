# SPDX-License-Identifier: Apache-2.0
"""Topics as a list shows them: where they are, how many queues they have in all, and what may be done with those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lake.delta.query import text
from lake.history.as_of_resolver import AsOf
from lake.history.history import History
from lake.history.state_at import Condition
from nameserver.view.model import TopicQueues
from nameserver.view.snapshot import RouteView
from schemas.tables import BROKER_ADDR_TABLE, TOPIC_QUEUE_TABLE


def topic_sums(view: RouteView, topics: Iterable[str]) -> list[dict[str, Any]]:
    """A row for each topic that the view has.

    ``brokers`` is how many broker groups hold it, ``readQueueNums`` and ``writeQueueNums`` are sums over them whatever
    may be done with the queues, ``perms`` are their different permissions. Equal topics are summed once, since a view
    has one object for them.
    """
    known: dict[int, dict[str, Any]] = {}
    found = []
    for topic in topics:
        queues = view.topics.get(topic)
        if queues is None:
            continue
        sums = known.get(id(queues))
        if sums is None:
            sums = known[id(queues)] = _sums(view, queues)
        found.append({"topicName": topic, **sums})
    return found


def page_at(history: History, moment: AsOf, page: Sequence[str]) -> RouteView:
    """A view of the topics of a page, which are neighbours in the order of names, and of all broker groups."""
    if not page:
        return RouteView.empty()
    between = f'"topic" >= {text(page[0])} AND "topic" <= {text(page[-1])}'
    return history.view(moment, {TOPIC_QUEUE_TABLE.name: Condition(between), BROKER_ADDR_TABLE.name: Condition()})


def _sums(view: RouteView, queues: TopicQueues) -> dict[str, Any]:
    groups = (view.groups.get(name) for name in queues.brokers)
    return {
        "clusters": sorted({group.row.cluster for group in groups if group is not None}),
        "brokers": len(queues.brokers),
        "readQueueNums": sum(row[0] for row in queues.rows),
        "writeQueueNums": sum(row[1] for row in queues.rows),
        "perms": sorted({row[2] for row in queues.rows}),
    }

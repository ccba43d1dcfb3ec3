# SPDX-License-Identifier: Apache-2.0
"""Owner and size of each broker group: the topics, brokers and mappings registered at this gateway, by peer.

It is updated with each registration, and is an overestimate rather than an underestimate. Three cases are corrected
only at the next count (`RouteView.topic_counts`): a group that has left, deleted topics, and a registration without
effect. Static topic mappings are removed with their group. A gateway that has just started knows no group. Brokers
register within a minute.

The cost of a write in event log and tables is a rough estimate in bytes, rather too high.

It was measured with 40 groups of 1,000 topics and 5 of 20,000 (`tests/e2e/test_quotas.py` measures again, with
everything). A payload is on the log once. Its content is in a table and in the history, and twice there if it replaces
something. A row with a name similar to its neighbours' takes 7 bytes, and the payload has the differences of the names.
The first change of an epoch rewrites a partition of topicQueueTable. Each epoch has its commits, for any change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping
from typing import Final, NamedTuple

from nameserver.view.snapshot import RouteView
from schemas.broker import MASTER_ID
from schemas.events import (
    AddWritePerm,
    AnyEvent,
    ChannelClosed,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    UnregisterBroker,
    WipeWritePerm,
    inflated_bytes,
)

LOG_ROW_BYTES: Final = 60
"""Size of a record on the event log without its payload."""
COPIES: Final = 4
"""Copies of a payload in event log, table and history."""
KV_COPIES: Final = 8
"""Copies of a KV value. The history has it before and after, and tables are compressed less than the log."""
COMMAND_BYTES: Final = 500
"""Size of a command in the history, for any effect."""
ROW_BYTES: Final = 10
"""Size of a row without its name."""
HISTORY_ROW_BYTES: Final = 40
"""Size of a single row of history."""
ADDRESS_BYTES: Final = 150
"""Size of an address in the table of its group."""
NEW_GROUP_BYTES: Final = 6_000
"""Cost of a new brokerName: a folder, and rows of four tables."""
PARTITION_BYTES: Final = 4_000
"""Size of a file of a partition without its rows."""
EPOCH_BYTES: Final = 40_000
"""Size of an epoch's commits."""
LIVE_ROW_BYTES: Final = 80
"""Size of a row of brokerLiveTable. Each epoch rewrites all of them."""
KV_ENTRY_BYTES: Final = 40

_COMMITS: Final = 0
_KV: Final = 1
"""Parts that an epoch writes once, in addition to partitions. They are numbers, as a brokerName may be any text."""


class Size(NamedTuple):
    """Number of topics of a broker group, and size of their names.

    Attributes:
        rows: Number of its topics.
        name_bytes: Compressed size of their names.
    """

    rows: int = 0
    name_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Size of the topics in one table, in bytes."""
        return ROW_BYTES * self.rows + self.name_bytes


class Cost(NamedTuple):
    """Cost of a write.

    Attributes:
        bytes: Bytes added to event log and tables.
        parts: Parts of the write that an epoch writes once: commits, the KV table, and partitions by brokerName.
    """

    bytes: int
    parts: list[str | int]


def log_bytes(payload_bytes: int) -> int:
    """Return the size of a record on the event log, in bytes."""
    return LOG_ROW_BYTES + payload_bytes


def cost_of(
    event: AnyEvent,
    payload_bytes: int,
    view: RouteView,
    size_of: Callable[[str], Size],
    paid: Container[str | int] = (),
    topics: Collection[str] = (),
) -> Cost:
    """Estimate the cost of an event, on the assumption that it changes something.

    Args:
        event: Any event except a heartbeat. A registration may lack its topics.
        payload_bytes: Size of its payload on the event log.
        view: Live view.
        size_of: Returns the size of a broker group.
        paid: Parts of its epoch that were charged to other writes.
        topics: Topics of a registration.
    """
    size = log_bytes(COPIES * payload_bytes) + COMMAND_BYTES
    if _COMMITS not in paid:
        size += EPOCH_BYTES + LIVE_ROW_BYTES * len(view.groups)
    parts: list[str | int] = [_COMMITS]
    names: Collection[str] = ()
    match event:
        case PutKvConfig() | DeleteKvConfig():
            size += (KV_COPIES - COPIES) * payload_bytes + (0 if _KV in paid else _kv_bytes(view))
            parts.append(_KV)
        case RegisterBroker(broker_name=name):
            size += ROW_BYTES * (len(topics) + mapping_rows(event))
            size += 2 * ADDRESS_BYTES * len(view.live_rows(name))  # before and after
            size += 0 if name in view.groups else NEW_GROUP_BYTES
            names = (name,)
        case UnregisterBroker(broker_name=name) | ChannelClosed(broker_name=name):
            # Rows that are removed together leave history, but no partition.
            size += PARTITION_BYTES + (size_of(name).bytes if name in view.groups else 0)
        case WipeWritePerm(broker_name=name) | AddWritePerm(broker_name=name):
            size += size_of(name).bytes if name in view.groups else 0
            names = (name,)
        case DeleteTopic(topic=topic):
            rows = view.topics.get(topic)
            names = () if rows is None else rows.brokers
            size += HISTORY_ROW_BYTES * len(names)
        case RegisterTopic():
            names = (event.queue_data.broker_name,)
            size += HISTORY_ROW_BYTES
        case _:
            pass
    rewritten = [name for name in names if name in view.groups]
    size += sum(PARTITION_BYTES + size_of(name).bytes for name in rewritten if name not in paid)
    return Cost(size, [*parts, *rewritten])


def mapping_rows(event: RegisterBroker) -> int:
    """Return the number of rows for static topic mappings, with their queue ids, and filter servers."""
    mappings = event.topic_queue_mapping_info_map.values()
    return sum(1 + len(found.curr_id_map or ()) for found in mappings) + len(event.filter_server_list or ())


def has_new_name(event: AnyEvent, view: RouteView) -> bool:
    """Return whether a command brings a new name."""
    if isinstance(event, PutKvConfig):
        return event.key not in view.kv.get(event.namespace, ())
    return isinstance(event, RegisterTopic) and event.topic not in view.topics


def _kv_bytes(view: RouteView) -> int:
    """Estimate the size of the table of all KV entries, in bytes."""
    entries = (entry for table in view.kv.values() for entry in table.items())
    return sum(KV_ENTRY_BYTES + len(key) + len(value or "") for key, value in entries)


_SLACK: Final = 1_000
"""Number of groups beyond the existing ones before groups that have left are forgotten."""


class Held(NamedTuple):
    """Usage of a broker group.

    Attributes:
        who: Peer that owns the group.
        brokers: Number of its addresses.
        size: Number and size of its topics.
        mappings: Number of its static topic mappings and their queues.
        json_bytes: Size of its registrations as JSON, in bytes.
    """

    who: str
    brokers: int = 0
    size: Size = Size()
    mappings: int = 0
    json_bytes: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Usage of the group, by quota."""
        return {"brokers": self.brokers, "topics": self.size.rows + self.mappings, "topic-mb": self.json_bytes}


class UsageLedger:
    """Broker groups of one gateway, by name. Used by one thread at a time."""

    def __init__(self) -> None:
        """Create an empty ledger."""
        self._groups: dict[str, Held] = {}
        self._totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Sum of `Held.counts` by peer."""

    def find(self, broker_name: str) -> Held | None:
        """Return a group that registered at this gateway. None if it did not."""
        return self._groups.get(broker_name)

    def growth(self, broker_name: str, after: Held) -> dict[str, int]:
        """Return a peer's new totals, for the quotas of which a registration (``after``) uses more."""
        before, total = self._groups.get(broker_name), self._totals.get(after.who, Counter())
        had = Held(after.who).counts if before is None or before.who != after.who else before.counts
        return {quota: total[quota] + now - had[quota] for quota, now in after.counts.items() if now > had[quota]}

    def after(
        self, who: str, event: RegisterBroker, topics: int, new_rows: int, payload: bytes, view: RouteView
    ) -> Held:
        """Return a group as it will be after a registration.

        Args:
            who: Peer that will own the group.
            event: Registration. Its topics may be left out.
            topics: Number of topics in the registration.
            new_rows: Number of topics that are new to the group (`new_topics`).
            payload: Event in the form of the event log.
            view: Live view.
        """
        name, live = event.broker_name, view.live_rows(event.broker_name)
        brokers = len(live) + ((event.cluster_name, event.broker_addr) not in live)
        mappings, json_bytes = _new_mappings(event, view), inflated_bytes(payload) or 0
        before = self._groups.get(name)
        if before is None or name not in view.groups:  # a group that this gateway does not know brings all its topics
            return Held(who, brokers, Size(topics, len(payload)), mappings, json_bytes)
        share = min(1.0, (new_rows + mappings) / max(1, topics + mapping_rows(event)))
        return Held(
            who,
            brokers,
            Size(
                max(topics, before.size.rows + new_rows),
                max(len(payload), before.size.name_bytes + int(len(payload) * share)),
            ),
            before.mappings + mappings,
            max(json_bytes, before.json_bytes + int(json_bytes * share)),
        )

    def take(self, broker_name: str, held: Held, view: RouteView) -> None:
        """Record the owner of a group.

        Args:
            broker_name: Name of the group.
            held: Usage of the group after the registration (`after`).
            view: Live view.
        """
        self._set(broker_name, held)
        if len(self._groups) > len(view.groups) + _SLACK:
            for other in self._groups.keys() - view.groups.keys() - {broker_name}:
                self._set(other, None)

    def recount(self, rows: Mapping[str, int]) -> None:
        """Use the numbers of `RouteView.topic_counts`."""
        for name, held in [*self._groups.items()]:
            counted = rows.get(name)
            if counted is None:
                self._set(name, None)
                continue
            share = min(1.0, counted / max(1, held.size.rows))
            size = Size(counted, int(held.size.name_bytes * share))
            self._set(name, held._replace(size=size, json_bytes=int(held.json_bytes * share)))

    def _set(self, broker_name: str, held: Held | None) -> None:
        before = self._groups.pop(broker_name, None)
        if held is not None:
            self._groups[broker_name] = held
            self._totals[held.who].update(held.counts)
        if before is not None:
            total = self._totals[before.who]
            total.subtract(before.counts)
            if not total["brokers"]:
                del self._totals[before.who]


def _new_mappings(event: RegisterBroker, view: RouteView) -> int:
    """Return the number of new static topic mappings and their queues."""
    tables, found = view.mapping_tables, 0
    for topic, info in event.topic_queue_mapping_info_map.items():
        known = tables.get(topic)
        if known is None or info.bname not in known.by_bname:
            found += 1 + len(info.curr_id_map or ())
    return found


def new_topics(event: RegisterBroker, names: Collection[str], view: RouteView) -> tuple[int, int]:
    """Count the topics that are new to the group, and those that are new to all groups. Without topics of slaves."""
    if event.broker_id != MASTER_ID and event.enable_acting_master is None:
        return 0, 0
    topics, broker_name, to_group, to_all = view.topics, event.broker_name, 0, 0
    if broker_name not in view.groups:
        return len(names), len(names) - sum(map(topics.__contains__, names))
    for name in names:
        rows = topics.get(name)
        if rows is None:
            to_all += 1
        elif rows.find(broker_name) is None:
            to_group += 1
    return to_group + to_all, to_all

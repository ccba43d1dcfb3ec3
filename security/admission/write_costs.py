# SPDX-License-Identifier: Apache-2.0
"""Cost of a write in event log and tables, in bytes: a rough estimate that is rather too high. Pure.

Measured with 40 groups of 1,000 topics and 5 of 20,000 (`tests/e2e/test_quotas.py` measures again, with all of it): a
payload is on the log once, and what it says stands in a table and in the history, twice where it replaces something. A
row with a name that is like its neighbours' takes 7 bytes; what the names differ in is in the payload. A partition of
topicQueueTable is written anew with the first change of an epoch, and each epoch has its commits, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Final, NamedTuple

from nameserver.view.snapshot import RouteView
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
)

LOG_ROW_BYTES: Final = 60
"""Size of a record on the event log without its payload."""
COPIES: Final = 4
"""Copies of a payload in event log, table and history."""
KV_COPIES: Final = 8
"""The history has the value before and the value after, and tables are compressed less than the log."""
COMMAND_BYTES: Final = 500
"""Size of a command in the history, whatever it did."""
ROW_BYTES: Final = 10
"""Size of a row without its name."""
HISTORY_ROW_BYTES: Final = 40
"""Size of a single row of history."""
ADDRESS_BYTES: Final = 150
"""Size of an address in the table of its group."""
NEW_GROUP_BYTES: Final = 6_000
"""Cost of a brokerName that was not there: a folder, and rows of four tables."""
PARTITION_BYTES: Final = 4_000
"""Size of a file of a partition without its rows."""
EPOCH_BYTES: Final = 40_000
"""Size of an epoch's commits."""
LIVE_ROW_BYTES: Final = 80
"""Size of a row of brokerLiveTable. Each epoch writes all of them again."""
KV_ENTRY_BYTES: Final = 40

_COMMITS: Final = 0
_KV: Final = 1
"""Parts that an epoch writes once, next to partitions. They are numbers, because a brokerName may be any text."""


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
        """Size of the topics in a table, once, in bytes."""
        return ROW_BYTES * self.rows + self.name_bytes


class Cost(NamedTuple):
    """Cost of a write.

    Attributes:
        bytes: Bytes added to event log and tables.
        parts: Parts of the write that an epoch writes once: commits, the KV table, and by brokerName partitions.
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
        event: Any but a heartbeat. A registration may lack its topics.
        payload_bytes: Size of its payload on the event log.
        view: The live view.
        size_of: Returns the size of a broker group.
        paid: Parts of its epoch that other writes were charged for.
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
            # Rows that go all at once leave no partition behind, but history.
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
    """Static topic mappings and filter servers that a registration brings, as rows; a mapping has queue ids, too."""
    mappings = event.topic_queue_mapping_info_map.values()
    return sum(1 + len(found.curr_id_map or ()) for found in mappings) + len(event.filter_server_list or ())


def has_new_name(event: AnyEvent, view: RouteView) -> bool:
    """Return whether a command brings a name that was not there."""
    if isinstance(event, PutKvConfig):
        return event.key not in view.kv.get(event.namespace, ())
    return isinstance(event, RegisterTopic) and event.topic not in view.topics


def _kv_bytes(view: RouteView) -> int:
    """Estimate the size of the table of all KV entries, in bytes."""
    entries = (entry for table in view.kv.values() for entry in table.items())
    return sum(KV_ENTRY_BYTES + len(key) + len(value or "") for key, value in entries)

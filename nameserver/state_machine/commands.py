# SPDX-License-Identifier: Apache-2.0
"""Commands of administrators: delete and register a topic, wipe and add write permission, KV configuration."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from nameserver.state_machine.liveness import without_digests, without_write_perm
from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    BrokerGroup,
    KvTable,
    Outcome,
    TopicTable,
    each_row,
    without,
)
from schemas.broker import PERM_READ, PERM_WRITE, QueueRow
from schemas.events import AddWritePerm, DeleteKvConfig, DeleteTopic, PutKvConfig, RegisterTopic, WipeWritePerm
from schemas.kv import entry_bytes, table_bytes
from schemas.limits import MAX_KV_BYTES
from schemas.outcomes import KV_TABLE_FULL, REJECTED, UNCHANGED, UNKNOWN_BROKER


def delete_topic(group: BrokerGroup, event: DeleteTopic) -> tuple[BrokerGroup, Outcome]:
    """216 (RouteInfoManager.deleteTopic): delete this group's row. With a cluster, only if the cluster lists the group.

    The digests are deleted with the row. So the next registration compares its topics again, and writes the row again.
    Static-topic mapping is not removed.
    """
    if event.cluster_name and event.cluster_name not in group.clusters:
        return group, OUTCOME_UNCHANGED
    if event.topic not in group.topics:
        return group, OUTCOME_UNCHANGED
    kept = group.topics.changed({}, [event.topic])
    return replace(without_digests(group), topics=kept), OUTCOME_APPLIED


def register_topic(group: BrokerGroup, event: RegisterTopic) -> tuple[BrokerGroup, Outcome]:
    """217 (RouteInfoManager.registerTopic) for one group: write the row if the broker is known."""
    if not group.known:
        return group, Outcome(REJECTED, UNKNOWN_BROKER)
    data = event.queue_data
    row = QueueRow(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
    if group.topics.rows.get(event.topic) == row:
        return group, OUTCOME_UNCHANGED
    return replace(group, topics=group.topics.changed({event.topic: row})), OUTCOME_APPLIED


def wipe_write_perm(group: BrokerGroup, event: WipeWritePerm) -> tuple[BrokerGroup, Outcome]:
    """205: clear the write bit of every row. The count includes rows that did not change."""
    after = without_write_perm(group)
    result = {"wipeTopicCount": len(group.topics.rows)}
    return after, Outcome(UNCHANGED if after is group else "applied", result=result)


def add_write_perm(group: BrokerGroup, event: AddWritePerm) -> tuple[BrokerGroup, Outcome]:
    """327: set the permission of every row to exactly 6. The inherit bit is lost, as in RocketMQ."""
    rows = group.topics.rows
    given = each_row(rows, lambda row: row._replace(perm=PERM_READ | PERM_WRITE))
    after = replace(group, topics=TopicTable(given)) if given != rows else group
    return after, Outcome(UNCHANGED if after is group else "applied", result={"addTopicCount": len(rows)})


class _Sized(dict[str, Mapping[str, str | None]]):
    """A `KvTable` that stores its `kv_bytes`, so that they are not counted again for each of many commands."""

    size_bytes: int


def kv_bytes(kv: KvTable) -> int:
    """Return the bytes of a KV configuration that count towards MAX_KV_BYTES."""
    if isinstance(kv, _Sized):
        return kv.size_bytes
    return table_bytes(kv)


def put_kv(kv: KvTable, event: PutKvConfig) -> tuple[KvTable, Outcome]:
    """100: set an entry. The first key of a namespace creates it. A null value is read as "not found".

    A command that would make the table larger than MAX_KV_BYTES is rejected. A table from before this limit may be
    larger, and may shrink.
    """
    namespace = kv.get(event.namespace)
    if namespace is not None and event.key in namespace and namespace[event.key] == event.value:
        return kv, OUTCOME_UNCHANGED
    kept = dict(namespace or {})
    before_bytes = after_bytes = kv_bytes(kv)
    # A null row that only kept its namespace is removed. (The first test is far cheaper than a search for it.)
    gone = [key for key, value in kept.items() if value is None] if None in kept.values() else []
    for key in {event.key, *gone} & kept.keys():
        after_bytes -= entry_bytes(event.namespace, key, kept[key])
    for key in gone:
        del kept[key]
    after_bytes += entry_bytes(event.namespace, event.key, event.value)
    if after_bytes > MAX_KV_BYTES and after_bytes > before_bytes:
        return kv, Outcome(REJECTED, KV_TABLE_FULL)
    kept[event.key] = event.value
    return _sized({**kv, event.namespace: kept}, after_bytes), OUTCOME_APPLIED


def delete_kv(kv: KvTable, event: DeleteKvConfig) -> tuple[KvTable, Outcome]:
    """102: delete an entry. A namespace is never removed, so its last key stays with a null value."""
    namespace = kv.get(event.namespace)
    if namespace is None or namespace.get(event.key) is None:
        return kv, OUTCOME_UNCHANGED
    kept = without(namespace, event.key) or {event.key: None}
    after_bytes = kv_bytes(kv) - entry_bytes(event.namespace, event.key, namespace[event.key])
    if event.key in kept:
        after_bytes += entry_bytes(event.namespace, event.key, None)
    return _sized({**kv, event.namespace: kept}, after_bytes), OUTCOME_APPLIED


def _sized(entries: dict[str, Mapping[str, str | None]], size_bytes: int) -> KvTable:
    kv = _Sized(entries)
    kv.size_bytes = size_bytes
    return kv

# SPDX-License-Identifier: Apache-2.0
"""KV configuration (KVConfigManager): namespace -> key -> value."""

from __future__ import annotations

from collections.abc import Mapping

from nameserver.state_machine.state import OUTCOME_APPLIED, OUTCOME_UNCHANGED, KvTable, Outcome, without
from schemas.events import DeleteKvConfig, PutKvConfig
from schemas.kv import entry_bytes, table_bytes
from schemas.limits import MAX_KV_BYTES
from schemas.outcomes import KV_TABLE_FULL, REJECTED


class _Sized(dict[str, Mapping[str, str | None]]):
    """A `KvTable` that knows its `kv_bytes`, so that they are not counted anew for each of many commands."""

    size_bytes: int


def kv_bytes(kv: KvTable) -> int:
    """Bytes of a KV configuration that count towards MAX_KV_BYTES."""
    if isinstance(kv, _Sized):
        return kv.size_bytes
    return table_bytes(kv)


def put(kv: KvTable, event: PutKvConfig) -> tuple[KvTable, Outcome]:
    """100: namespaces come into being with their first key. A null value reads as "not found".

    What would make the table larger than MAX_KV_BYTES is rejected; one that is (from before there was a bound) may
    shrink.
    """
    namespace = kv.get(event.namespace)
    if namespace is not None and event.key in namespace and namespace[event.key] == event.value:
        return kv, OUTCOME_UNCHANGED
    kept = dict(namespace or {})
    before_bytes = after_bytes = kv_bytes(kv)
    # A key that only kept its namespace in being gives way. (The test for one is far cheaper than looking for it.)
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


def delete(kv: KvTable, event: DeleteKvConfig) -> tuple[KvTable, Outcome]:
    """102: a namespace is never removed, so its last key stays with a null value."""
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

"""KV configuration (KVConfigManager): namespace -> key -> value."""

from __future__ import annotations

from pipelines.fold.state import APPLIED, UNCHANGED, KvTable, Outcome, without
from schemas.events import DeleteKvConfig, PutKvConfig


def put(kv: KvTable, event: PutKvConfig) -> tuple[KvTable, Outcome]:
    """100: namespaces come into being with their first key. A null value reads as "not found"."""
    namespace = kv.get(event.namespace)
    if namespace is not None and event.key in namespace and namespace[event.key] == event.value:
        return kv, UNCHANGED
    # A key that only kept its namespace in being gives way.
    kept = {key: value for key, value in (namespace or {}).items() if value is not None}
    return {**kv, event.namespace: {**kept, event.key: event.value}}, APPLIED


def delete(kv: KvTable, event: DeleteKvConfig) -> tuple[KvTable, Outcome]:
    """102: a namespace is never removed, so its last key stays with a null value."""
    namespace = kv.get(event.namespace)
    if namespace is None or namespace.get(event.key) is None:
        return kv, UNCHANGED
    kept = without(namespace, event.key)
    return {**kv, event.namespace: kept or {event.key: None}}, APPLIED

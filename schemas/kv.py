# SPDX-License-Identifier: Apache-2.0
"""KV namespaces with a meaning, and the size of KV configuration that counts towards its limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.limits import KV_ENTRY_BYTES

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG: topic to ``brokerName:queues``, separated by semicolons."""

NAMESRV_CONFIG: Final = "routelake.namesrvConfig"
"""Settings changed by UPDATE_NAMESRV_CONFIG: value by key, for every gateway of a log. KV requests can neither read
nor change it. Analysts find it in kvConfigTable, as the rest."""


def is_reserved(namespace: str | None) -> bool:
    """Return True if KV requests may not use a namespace."""
    return namespace == NAMESRV_CONFIG


def existing(table: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """Return a namespace without its deleted keys, which have the value None. None if it has never had a key."""
    return None if table is None else {key: value for key, value in table.items() if value is not None}


def entry_bytes(namespace: str, key: str, value: str | None) -> int:
    """Return the bytes of one entry that count towards `schemas.limits.MAX_KV_BYTES`. Settings do not count."""
    if is_reserved(namespace):
        return 0
    return KV_ENTRY_BYTES + sum(len(text.encode("utf-8", "replace")) for text in (namespace, key, value or ""))


def table_bytes(kv: Mapping[str, Mapping[str, str | None]]) -> int:
    """Return the bytes of a whole KV table that count: namespace -> key -> value."""
    return sum(
        entry_bytes(namespace, key, value) for namespace, entries in kv.items() for key, value in entries.items()
    )

# SPDX-License-Identifier: Apache-2.0
"""KV namespaces with a meaning, and what KV configuration counts against its bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.limits import KV_ENTRY_BYTES

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG: topic to ``brokerName:queues``, separated by semicolons."""

NAMESRV_CONFIG: Final = "routelake.namesrvConfig"
"""Settings changed by UPDATE_NAMESRV_CONFIG: key to value, for every gateway of a log. KV requests
neither see nor change it; analysts find it in kvConfigTable like the rest."""


def is_reserved(namespace: str | None) -> bool:
    """Return True if KV requests may not use a namespace."""
    return namespace == NAMESRV_CONFIG


def existing(table: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """A namespace without its deleted keys, whose value is None. None if it was never put into."""
    return None if table is None else {key: value for key, value in table.items() if value is not None}


def entry_bytes(namespace: str, key: str, value: str | None) -> int:
    """Bytes of one entry that count towards `schemas.limits.MAX_KV_BYTES`; settings count nothing."""
    if is_reserved(namespace):
        return 0
    return KV_ENTRY_BYTES + sum(len(text.encode("utf-8", "replace")) for text in (namespace, key, value or ""))


def table_bytes(kv: Mapping[str, Mapping[str, str | None]]) -> int:
    """Bytes of a whole KV table that count: namespace -> key -> value."""
    return sum(
        entry_bytes(namespace, key, value) for namespace, entries in kv.items() for key, value in entries.items()
    )

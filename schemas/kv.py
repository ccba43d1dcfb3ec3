"""KV namespaces with a meaning."""

from __future__ import annotations

from typing import Final

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG: topic to ``brokerName:queues``, separated by semicolons."""

NAMESRV_CONFIG: Final = "routelake.namesrvConfig"
"""Settings changed by UPDATE_NAMESRV_CONFIG: key to value, for every gateway of a log. KV requests of any door neither
see nor change it; analysts find it in kvConfigTable like the rest."""


def is_reserved(namespace: str | None) -> bool:
    """Whether a namespace is closed to KV requests."""
    return namespace == NAMESRV_CONFIG

# SPDX-License-Identifier: Apache-2.0
"""KVConfigManager: namespaces of key-value pairs."""

from __future__ import annotations

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KVConfigModel:
    """org.apache.rocketmq.namesrv.kvconfig.KVConfigManager.

    Attributes:
        config_table: namespace -> (key -> value). Namespaces are never removed; a value may be null.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.config_table: dict[str | None, dict[str | None, str | None]] = {}

    def put(self, namespace: str | None, key: str | None, value: str | None) -> None:
        """KVConfigManager.putKVConfig."""
        self.config_table.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str | None, key: str | None) -> None:
        """KVConfigManager.deleteKVConfig."""
        if namespace in self.config_table:
            self.config_table[namespace].pop(key, None)

    def get(self, namespace: str | None, key: str | None) -> str | None:
        """KVConfigManager.getKVConfig."""
        return self.config_table.get(namespace, {}).get(key)

    def namespace(self, namespace: str | None) -> dict[str | None, str | None] | None:
        """KVConfigManager.getKVListByNamespace, before encoding; None when the namespace never existed."""
        return self.config_table.get(namespace)

# SPDX-License-Identifier: Apache-2.0
"""NamesrvConfig: the switches that change behaviour, and how 318 sets them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from dev.model.headers import JavaError, parse_boolean, parse_int


@dataclass
class Settings:
    """org.apache.rocketmq.common.namesrv.NamesrvConfig, as far as requests can tell."""

    cluster_test: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    def properties(self) -> dict[str, str]:
        """Every switch under its RocketMQ name, as text (MixAll.object2Properties)."""
        values = {property_name(field.name): getattr(self, field.name) for field in fields(self)}
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}

    def update(self, properties: dict[str, str]) -> None:
        """Configuration.update, MixAll.properties2Object: unknown keys and unparseable numbers change nothing."""
        for field in fields(self):
            text = properties.get(property_name(field.name))
            if text is None:
                continue
            current = getattr(self, field.name)
            if isinstance(current, bool):
                setattr(self, field.name, parse_boolean(text))
            elif isinstance(current, int):
                number = parse_int(text, bits=32)
                if number is not None:
                    setattr(self, field.name, number)
            else:
                setattr(self, field.name, text.strip())


def property_name(field_name: str) -> str:
    """support_acting_master -> supportActingMaster."""
    return re.sub(r"_(\w)", lambda match: match.group(1).upper(), field_name)


def parse_properties(text: str) -> dict[str, str]:
    """MixAll.string2Properties (java.util.Properties.load), without escapes and continued lines.

    Raises:
        JavaError: A malformed \\uxxxx escape.
    """
    if re.search(r"\\u(?![0-9a-fA-F]{4})", text):
        raise JavaError("Malformed \\uxxxx encoding")
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*)", line)
        if match:
            found[match.group(1)] = match.group(2)
    return found

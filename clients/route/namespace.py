# SPDX-License-Identifier: Apache-2.0
"""Topics and groups with a namespace in front: ``MQ_INST_1%orders``, ``%RETRY%MQ_INST_1%group``. Pure.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.NamespaceUtil, org.apache.rocketmq.common.utils
.NameServerAddressUtils, MixAll.isSysConsumerGroup.
"""

from __future__ import annotations

import re
from typing import Final

from schemas.topic_names import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

_SEPARATOR: Final = "%"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?MQ_INST_\w+_\w+\..*", re.ASCII)


def is_system_resource(resource: str) -> bool:
    """A topic or group of RocketMQ's own: it never carries a namespace."""
    return resource in SYSTEM_TOPICS or resource.startswith((SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX))


def wrap_namespace(namespace: str, resource: str) -> str:
    """Put the namespace in front, behind a %RETRY% or %DLQ%; a second time changes nothing."""
    if not namespace or not resource or is_system_resource(resource) or is_already_with_namespace(resource, namespace):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(resource: str, namespace: str | None = None) -> str:
    """Take the namespace away: any, or only the one named. An empty one takes nothing."""
    if namespace is not None and not is_already_with_namespace(resource, namespace):
        return resource
    if is_system_resource(resource):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    index = rest.find(_SEPARATOR)
    return prefix + rest[index + 1 :] if index > 0 else resource


def is_already_with_namespace(resource: str, namespace: str) -> bool:
    """Whether this namespace is in front."""
    if not namespace or not resource or is_system_resource(resource):
        return False
    return _retry_or_dlq(resource)[1].startswith(namespace + _SEPARATOR)


def instance_of_endpoint(endpoint: str) -> str | None:
    """The namespace that an address such as ``MQ_INST_1_abc.mq.example:9876`` stands for; None for other addresses."""
    if not _INSTANCE_ENDPOINT.fullmatch(endpoint):
        return None
    return endpoint[endpoint.rfind("/") + 1 : endpoint.index(".")]


def _retry_or_dlq(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource

# SPDX-License-Identifier: Apache-2.0
"""Topics and groups with a namespace in front: ``MQ_INST_1%orders``, ``%RETRY%MQ_INST_1%group``. Pure.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.NamespaceUtil, org.apache.rocketmq.common.utils
.NameServerAddressUtils, TopicValidator.isSystemTopic, MixAll.isSysConsumerGroup.
"""

from __future__ import annotations

import re
from typing import Final

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
"""The default topic: brokers that create topics on first use offer it."""

_SEPARATOR: Final = "%"
_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?MQ_INST_\w+_\w+\..*", re.ASCII)


def is_system_resource(resource: str) -> bool:
    """A topic or group of RocketMQ's own: it never carries a namespace."""
    return resource in _SYSTEM_TOPICS or resource.startswith((_SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX))


def wrap_namespace(namespace: str, resource: str) -> str:
    """Put the namespace in front, behind a %RETRY% or %DLQ%; a second time changes nothing."""
    if not namespace or not resource or is_system_resource(resource) or is_already_with_namespace(resource, namespace):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def wrap_namespace_and_retry(namespace: str, consumer_group: str) -> str | None:
    """The retry topic of a consumer group; None for an empty group."""
    return RETRY_GROUP_TOPIC_PREFIX + wrap_namespace(namespace, consumer_group) if consumer_group else None


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


def namespace_of(resource: str) -> str:
    """The namespace in front; empty without one (getNamespaceFromResource)."""
    if not resource or is_system_resource(resource):
        return ""
    namespace, separator, _ = _retry_or_dlq(resource)[1].partition(_SEPARATOR)
    return namespace if separator else ""


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

# SPDX-License-Identifier: Apache-2.0
"""The requests of mqadmin's commands: code, header and body of each. Pure.

Sources (5.5.0): org.apache.rocketmq.client.impl.MQClientAPIImpl, the methods named at each function;
org.apache.rocketmq.remoting.protocol.header.CreateTopicRequestHeader and its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cli.admin.java_hash import hash_order
from clients.broker.topic_config import TopicConfig, encode_topic_config
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode
from schemas.kv import ORDER_TOPIC_CONFIG
from schemas.topic_names import AUTO_CREATE_TOPIC_KEY_TOPIC

CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Codes of the requests that change something. All other requests only read, and a dry run sends them."""


def update_and_create_topic(config: TopicConfig) -> RemotingCommand:
    """UPDATE_AND_CREATE_TOPIC to a broker (createTopic)."""
    return RemotingCommand(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": config.topic_name,
            "defaultTopic": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "readQueueNums": str(config.read_queue_nums),
            "writeQueueNums": str(config.write_queue_nums),
            "perm": str(config.perm),
            "topicFilterType": config.topic_filter_type,
            "topicSysFlag": str(config.topic_sys_flag),
            "order": str(config.order).lower(),
            "attributes": attribute_edits(config.attributes),
            "force": "false",
        },
    )


def attribute_edits(edits: dict[str, str]) -> str:
    """Encode edits as ``+message.type=FIFO,-reserve.time`` (AttributeParser.parseToString). A removal has value ""."""
    return ",".join(f"{key}={edits[key]}" if edits[key] else key for key in hash_order(edits))


def update_and_create_topic_list(configs: Sequence[TopicConfig]) -> RemotingCommand:
    """UPDATE_AND_CREATE_TOPIC_LIST to a broker (createTopicList)."""
    body = b'{"topicConfigList":[%b]}' % b",".join(encode_topic_config(_as_java_has_it(config)) for config in configs)
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def _as_java_has_it(config: TopicConfig) -> TopicConfig:
    edits = config.attributes
    return msgspec.structs.replace(config, attributes={key: edits[key] for key in hash_order(edits)})


def get_routeinfo_by_topic(topic: str) -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC to a NameServer (getTopicRouteInfoFromNameServer)."""
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def get_broker_cluster_info() -> RemotingCommand:
    """GET_BROKER_CLUSTER_INFO to a NameServer (getBrokerClusterInfo)."""
    return RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)


def get_all_topic_list() -> RemotingCommand:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER to a NameServer (getTopicListFromNameServer)."""
    return RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def put_kv_config(namespace: str, key: str, value: str) -> RemotingCommand:
    """PUT_KV_CONFIG to a NameServer (putKVConfigValue)."""
    return RemotingCommand(RequestCode.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})


def get_kv_config(namespace: str, key: str) -> RemotingCommand:
    """GET_KV_CONFIG to a NameServer (getKVConfigValue)."""
    return RemotingCommand(RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key})


def get_order_conf(topic: str) -> RemotingCommand:
    """GET_KV_CONFIG of a topic's order configuration to a NameServer (getKVConfigValue)."""
    return get_kv_config(ORDER_TOPIC_CONFIG, topic)


def put_order_conf(topic: str, order_conf: str) -> RemotingCommand:
    """PUT_KV_CONFIG of a topic's order configuration to a NameServer (createOrUpdateOrderConf)."""
    return put_kv_config(ORDER_TOPIC_CONFIG, topic, order_conf)


def merge_order_conf(old: str | None, broker_conf: str) -> str:
    """A topic's order configuration with one broker's part replaced or added (createOrUpdateOrderConf).

    Args:
        old: Present configuration, such as ``broker-a:4;broker-b:4``, or None.
        broker_conf: Part of the broker, such as ``broker-a:8``.
    """
    parts = [*((old or "").split(";") if (old or "").strip() else []), broker_conf]
    by_broker = {part.split(":")[0]: part for part in parts}
    return ";".join(by_broker[name] for name in hash_order(by_broker))


def get_namesrv_config() -> RemotingCommand:
    """GET_NAMESRV_CONFIG to a NameServer (getNameServerConfig)."""
    return RemotingCommand(RequestCode.GET_NAMESRV_CONFIG)

# SPDX-License-Identifier: Apache-2.0
"""Route types of a NameServer's answers: TopicRouteData, ClusterInfo and their parts.

Fields are declared in the alphabetical order of their wire names, because RocketMQ writes object keys that way. A None
field is left out. Empty maps and lists are written. `schemas.rocketmq_json` encodes them in both dialects.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.route.TopicRouteData, .BrokerData, .QueueData,
org.apache.rocketmq.remoting.protocol.body.ClusterInfo.
"""

from __future__ import annotations

import msgspec

from schemas.broker import Int, TopicQueueMappingInfo


class QueueData(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A topic's queues on one broker group. Some releases leave numbers out, which then are 0."""

    broker_name: str
    perm: Int = 0
    read_queue_nums: Int = 0
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 0


class BrokerData(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One broker group. ``broker_addrs`` is brokerId (0 = master) to ip:port."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool
    zone_name: str | None = None


class TopicRouteData(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC.

    ``filter_server_table`` is broker address to filter servers, ``topic_queue_mapping_by_broker`` is bname to mapping.
    """

    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None = None
    queue_datas: list[QueueData]
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer to GET_BROKER_CLUSTER_INFO: brokerName to BrokerData, and cluster to brokerNames."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]

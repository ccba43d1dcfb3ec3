# SPDX-License-Identifier: Apache-2.0
"""Requests at the end of a history: every view of its names."""

from __future__ import annotations

from dev.histories.steps import ADDRESSES, BROKERS, CLUSTERS, NAMESPACES, TOPICS, Send
from dev.model import codes
from dev.model.wire import Request


def audit_requests(example: int = 0) -> list[Request]:
    """A request for every view of a history's names. The last ones, 322, refresh the brokers they ask about.

    Args:
        example: The number the names were renamed with.
    """
    sends = [
        Send(codes.GET_BROKER_CLUSTER_INFO),
        Send(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        Send(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        Send(codes.GET_UNIT_TOPIC_LIST),
        Send(codes.GET_HAS_UNIT_SUB_TOPIC_LIST),
        Send(codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        Send(codes.GET_NAMESRV_CONFIG),
        *(Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}) for topic in TOPICS),
        *(Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, version=399) for topic in TOPICS[:3]),
        *(
            Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "__ZONE_MODE": "true", "__ZONE_NAME": "HZ"})
            for topic in TOPICS[:3]
        ),
        *(Send(codes.GET_BROKER_MEMBER_GROUP, {"clusterName": CLUSTERS[0], "brokerName": name}) for name in BROKERS),
        *(Send(codes.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}) for cluster in CLUSTERS),
        *(Send(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}) for namespace in NAMESPACES),
        *(
            Send(codes.QUERY_DATA_VERSION, {"clusterName": cluster, "brokerAddr": addr}, '{"counter":1}')
            for cluster in CLUSTERS[:2]
            for addr in ADDRESSES
        ),
    ]
    return [send.request(example) for send in sends]

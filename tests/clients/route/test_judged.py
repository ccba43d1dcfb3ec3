# SPDX-License-Identifier: Apache-2.0
"""The pure parts against RocketMQ's own client 5.5.0: the same input, the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError, get_return_value

from clients.route import client as ns
from clients.route.brokers import broker_vip_channel
from clients.route.cache import topic_route_data_changed
from clients.route.errors import OrderConfError
from clients.route.latency import not_available_duration_ms
from clients.route.queues import static_topic_end_points, topic_publish_info, topic_subscribe_info
from dev.support.routes import group, mappings_st, route, routes_st, row
from schemas.route import TopicRouteData
from tests.clients.route.judge import JavaClient

pytestmark = pytest.mark.jvm

T = "t"


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    client = JavaClient(tmp_path_factory.mktemp("java"))
    with pytest.MonkeyPatch.context() as patch:
        # A session of Spark that this process had before asks its own JVM about every exception of any.
        patch.setattr("py4j.java_gateway.get_return_value", get_return_value)
        yield client
    client.close()


def pairs(found: Any) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in found]


@given(data=routes_st)
@example(data=route([row("b"), row("a"), row("\uffee"), row("\U0001f600")]))
@example(data=route([row("a", write=2)], [group("a", {1: "h:1"}), group("a", {0: "h:2"})]))
@example(data=route(order=""))
@example(data=route(order=";"))
@example(data=route(order="a:3:;b:1"))
def test_queues(java: JavaClient, data: TopicRouteData) -> None:
    ours = topic_publish_info(T, data)
    theirs, is_order = java.publish(T, data)
    if data.order_topic_conf is None and data.topic_queue_mapping_by_broker:
        # RocketMQ sorts the keys of a HashMap by queue id only: several scopes come in any order.
        assert sorted(pairs(ours.message_queue_list)) == sorted(theirs)
        assert [queue_id for _, queue_id in theirs] == [queue.queue_id for queue in ours.message_queue_list]
    else:
        assert pairs(ours.message_queue_list) == theirs
    assert ours.order_topic == is_order
    assert set(pairs(topic_subscribe_info(T, data))) == java.subscribe(T, data)


@given(mappings=mappings_st())
def test_static_topics(java: JavaClient, mappings: Any) -> None:
    data = route(mappings=mappings)
    ours = static_topic_end_points(T, data)
    assert {(q.broker_name, q.queue_id): name for q, name in ours.items()} == java.end_points(T, data)


@pytest.mark.parametrize("order", ["a", "a:", "a:x", "a: 1", "a:1_0", "a:2147483648", "a::3", ";a:1", "a:1;;b:1", ":"])
def test_order_configurations_that_cannot_be_read(java: JavaClient, order: str) -> None:
    with pytest.raises(OrderConfError, match="brokerName:queues"):
        topic_publish_info(T, route(order=order))
    with pytest.raises(Py4JJavaError):
        java.publish(T, route(order=order))


@given(old=routes_st, new=routes_st, same=st.booleans(), data=st.data())
def test_changes(java: JavaClient, old: TopicRouteData, new: TopicRouteData, same: bool, data: Any) -> None:
    if same:  # what two NameServers say of one topic: rows and groups in another order
        new = route(
            data.draw(st.permutations(old.queue_datas)),
            data.draw(st.permutations(old.broker_datas)),
            order=old.order_topic_conf,
            mappings=old.topic_queue_mapping_by_broker,
            filters=old.filter_server_table,
        )
    assert topic_route_data_changed(old, new) == java.changed(old, new)


NAMED = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "%RETRY%", "%DLQ%", "%RETRY%%DLQ%"]),
        st.sampled_from(["", "N1%", "N2%", "N1", "%"]),
        st.sampled_from(["", "orders", "TBW102", "rmq_sys_x", "CID_RMQ_SYS_x", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"]),
    ),
)


@given(namespace=st.sampled_from(["", "N1", "N2"]), name=NAMED)
def test_namespaces(java: JavaClient, namespace: str, name: str) -> None:
    theirs = java.namespace_util
    assert ns.wrap_namespace(namespace, name) == theirs.wrapNamespace(namespace, name)
    assert ns.without_namespace(name) == theirs.withoutNamespace(name)
    assert ns.without_namespace(name, namespace) == theirs.withoutNamespace(name, namespace)
    assert ns.is_already_with_namespace(name, namespace) == theirs.isAlreadyWithNamespace(name, namespace)


def test_system_topics(java: JavaClient) -> None:
    for topic in java.packages.common.topic.TopicValidator.getSystemTopicSet():
        assert ns.is_system_resource(topic)


@pytest.mark.parametrize(
    "endpoint",
    ["MQ_INST_1_abc.mq:80", "http://MQ_INST_1_abc.mq:80", "MQ_INST_1.mq:80", "MQ_INST_1_abc:80", "10.0.0.1:9876", "x"],
)
def test_instances(java: JavaClient, endpoint: str) -> None:
    utils = java.packages.common.utils.NameServerAddressUtils
    expected = utils.parseInstanceIdFromEndpoint(endpoint) if utils.validateInstanceEndpoint(endpoint) else None
    assert ns.instance_of_endpoint(endpoint) == expected


@pytest.mark.parametrize("address", ["10.0.0.1:10911", "[::1]:10911", "broker.example:3"])
def test_vip_channel(java: JavaClient, address: str) -> None:
    assert broker_vip_channel(address) == java.mix_all.brokerVIPChannel(True, address)


def test_durations(java: JavaClient) -> None:
    config = java.packages.client.ClientConfig()
    strategy = java.packages.client.latency.MQFaultStrategy(config, None, None)
    long = java.gateway.jvm.java.lang.Long
    types = java.gateway.new_array(java.gateway.jvm.java.lang.Class, 1)
    types[0] = long.TYPE
    method = strategy.getClass().getDeclaredMethod("computeNotAvailableDuration", types)
    method.setAccessible(True)
    arguments = java.gateway.new_array(java.gateway.jvm.java.lang.Object, 1)
    edges = [edge + step for edge in (0, 50, 100, 550, 1_800, 3_000, 5_000, 10_000, 15_000) for step in (-1, 0, 1)]
    for latency_ms in edges:
        arguments[0] = long.valueOf(latency_ms)
        assert not_available_duration_ms(latency_ms) == method.invoke(strategy, arguments)

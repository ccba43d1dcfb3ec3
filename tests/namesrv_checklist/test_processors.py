# SPDX-License-Identifier: Apache-2.0
"""What RequestProcessorTest, ClusterTestRequestProcessorTest and KVConfigManagerTest assert of the request handlers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.support.local import LocalLake
from tests.namesrv_checklist.brokers import (
    MASTER,
    Broker,
    NameServer,
    nameserver,
    nameserver_on_the_wire,
    registration,
    until,
)

SAMPLE = Broker("cluster", "broker", "10.10.1.1", "10.10.2.1", 2333, acting=None)
"""RequestProcessorTest.genSampleRegisterCmd."""
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
"""FAQUrl.suggestTodo(FAQUrl.APPLY_TOPIC_URL) in 5.5.0; tests/differential has the real one say it."""
WHERE: dict[str, Any] = {"namespace": "namespace", "key": "key"}


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        yield found


# --- KV configuration ---


def test_kv_config(ns: NameServer) -> None:
    """A value is put, read, listed and deleted. Deleting does not bring a namespace into being."""
    answer = ns.call(codes.DELETE_KV_CONFIG, **WHERE)
    assert (answer.code, answer.remark) == (codes.SUCCESS, None)
    assert ns.call(codes.GET_KVLIST_BY_NAMESPACE, namespace="namespace").code == codes.QUERY_NOT_FOUND
    answer = ns.call(codes.PUT_KV_CONFIG, **WHERE, value="value")
    assert (answer.code, answer.remark, answer.ext) == (codes.SUCCESS, None, None)
    answer = ns.call(codes.GET_KV_CONFIG, **WHERE)
    assert (answer.code, answer.remark, answer.ext) == (codes.SUCCESS, None, {"value": "value"})
    assert ns.json(codes.GET_KVLIST_BY_NAMESPACE, namespace="namespace") == {"table": {"key": "value"}}
    assert ns.call(codes.DELETE_KV_CONFIG, **WHERE).code == codes.SUCCESS
    answer = ns.call(codes.GET_KV_CONFIG, **WHERE)
    assert (answer.code, answer.ext) == (codes.QUERY_NOT_FOUND, {})
    assert answer.remark == "No config item, Namespace: namespace Key: key"


# --- configuration of the NameServer ---


def test_get_config(ns: NameServer) -> None:
    answer = ns.call(codes.GET_NAMESRV_CONFIG)
    assert answer.code == codes.SUCCESS
    assert b"enableTopicList=true\n" in answer.body


# --- brokers ---


def test_unsupported_request(ns: NameServer) -> None:
    answer = ns.call(30_999)
    assert answer.code == codes.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 30999 not supported"


@pytest.mark.parametrize("version", [513, 100])
def test_register_broker(ns: NameServer, version: int) -> None:
    """With the crc32 of its body; version 100 is the oldest kind that brings filter servers."""
    answer = ns.register(SAMPLE, "unit-test1", "unit-test2", base=False, version=version, filter_servers=("f:1",))
    assert (answer.code, answer.remark) == (codes.SUCCESS, None)
    table = ns.json(codes.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]
    assert table["broker"]["brokerAddrs"] == {"2333": "10.10.1.1"}


def test_register_broker_with_a_wrong_crc32(ns: NameServer) -> None:
    answer = ns.register(SAMPLE, "unit-test1", "unit-test2", bodyCrc32="1")
    assert (answer.code, answer.remark) == (codes.SYSTEM_ERROR, "crc32 not match")
    assert ns.json(codes.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"] == {}


def test_unregister_broker(ns: NameServer) -> None:
    """RocketMQ answers before it acts, and its test looks at once; here it is done when it is answered."""
    ns.register(MASTER, "T")
    ns.register(SAMPLE, "unit-test1", "unit-test2")
    answer = ns.call(codes.UNREGISTER_BROKER, **SAMPLE.header)
    assert (answer.code, answer.remark) == (codes.SUCCESS, None)
    assert set(ns.json(codes.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]) == {MASTER.name}


def test_query_data_version(ns: NameServer) -> None:
    answer = ns.call(codes.QUERY_DATA_VERSION, **SAMPLE.header)
    assert (answer.code, answer.ext, answer.body) == (codes.SUCCESS, {"changed": "true"}, b"")


def test_get_broker_member_group(ns: NameServer) -> None:
    ns.register(SAMPLE, "unit-test1", "unit-test2")
    group = ns.json(codes.GET_BROKER_MEMBER_GROUP, **SAMPLE.header)["brokerMemberGroup"]
    assert group == {"brokerAddrs": {"2333": "10.10.1.1"}, "brokerName": "broker", "cluster": "cluster"}


@pytest.mark.parametrize("known", [True, False])
def test_broker_heartbeat(ns: NameServer, known: bool) -> None:
    if known:
        ns.register(SAMPLE, "unit-test1", "unit-test2")
    answer = ns.call(codes.BROKER_HEARTBEAT, **SAMPLE.header)
    assert (answer.code, answer.remark) == (codes.SUCCESS, None)


def test_get_route_info_by_topic(ns: NameServer) -> None:
    ns.register(MASTER, "unit-test0")
    assert ns.call(codes.GET_ROUTEINFO_BY_TOPIC, topic="unit-test0").code == codes.SUCCESS
    answer = ns.call(codes.GET_ROUTEINFO_BY_TOPIC, topic="test")
    assert (answer.code, answer.body) == (codes.TOPIC_NOT_EXIST, b"")
    assert answer.remark == NO_ROUTE.format("test")


def test_get_route_info_without_a_topic(ns: NameServer) -> None:
    """ClusterTestRequestProcessorTest.testGetRouteInfoByTopic, as the ordinary processor answers it."""
    answer = ns.call(codes.GET_ROUTEINFO_BY_TOPIC)
    assert (answer.code, answer.body) == (codes.TOPIC_NOT_EXIST, b"")
    assert answer.remark == NO_ROUTE.format("null")


# --- topic lists ---


def test_get_all_topic_list(ns: NameServer) -> None:
    assert ns.call(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == codes.SUCCESS
    ns.call(codes.UPDATE_NAMESRV_CONFIG, b"enableAllTopicList=false")
    answer = ns.call(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark, answer.body) == (codes.SYSTEM_ERROR, "disable", b"")


@pytest.mark.parametrize(
    "code",
    [
        codes.GET_TOPICS_BY_CLUSTER,
        codes.GET_UNIT_TOPIC_LIST,
        codes.GET_HAS_UNIT_SUB_TOPIC_LIST,
        codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        codes.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    ],
)
def test_topic_lists(ns: NameServer, code: int) -> None:
    """All but the list of system topics can be switched off."""
    assert ns.json(code, cluster="default-cluster") == {"topicList": []}
    ns.call(codes.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false")
    answer = ns.call(code, cluster="default-cluster")
    if code == codes.GET_SYSTEM_TOPIC_LIST_FROM_NS:
        assert answer.code == codes.SUCCESS
    else:
        assert (answer.code, answer.remark, answer.body) == (codes.SYSTEM_ERROR, "disable", b"")


# --- needWaitForService ---


def route_code(ns: NameServer) -> tuple[int, str | None]:
    answer = ns.call(codes.GET_ROUTEINFO_BY_TOPIC, topic="T")
    return answer.code, answer.remark


def test_namesrv_ready() -> None:
    with nameserver(need_wait_for_service=True, wait_seconds_for_service=0) as ns:
        ns.register(MASTER, "T")
        assert route_code(ns) == (codes.SUCCESS, None)


def test_namesrv_no_need_wait_for_service() -> None:
    with nameserver(need_wait_for_service=False, wait_seconds_for_service=45) as ns:
        ns.register(MASTER, "T")
        assert route_code(ns) == (codes.SUCCESS, None)


def test_namesrv_not_ready(tmp_path: Path) -> None:
    """Only routes wait; everything else is answered."""
    with nameserver_on_the_wire(tmp_path, need_wait_for_service=True) as ns:
        ns.register(MASTER, "T")
        assert route_code(ns) == (codes.SYSTEM_ERROR, "name server not ready")
        assert ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"T", "baseTopic"}
        assert set(ns.json(codes.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]) == {MASTER.name}


def test_namesrv_becomes_ready(tmp_path: Path) -> None:
    with nameserver_on_the_wire(tmp_path, need_wait_for_service=True, wait_seconds_for_service=3) as ns:
        ns.register(MASTER, "T")
        assert route_code(ns) == (codes.SYSTEM_ERROR, "name server not ready")
        until(lambda: route_code(ns) == (codes.SUCCESS, None))


def test_a_lake_that_holds_routes_needs_no_waiting(tmp_path: Path) -> None:
    """Unlike a NameServer, a gateway that starts knows the routes; only over an empty lake there is a reason to wait."""
    with LocalLake(tmp_path) as lake:
        # A connection that ends before its gateway would take the broker with it.
        with contextlib.ExitStack() as after, lake.gateway() as gateway:
            client = after.enter_context(gateway.connect())
            client.call(registration(MASTER, "T"))
        with lake.gateway(need_wait_for_service=True) as gateway, gateway.connect() as client:
            answer = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
            assert answer.code == codes.SUCCESS

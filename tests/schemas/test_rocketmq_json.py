# SPDX-License-Identifier: Apache-2.0
"""Both JSON dialects, both ways."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.model.javajson import encode as java_encode
from dev.model.wire import parse_fastjson
from schemas.broker import TopicQueueMappingInfo
from schemas.rocketmq_json import (
    decode,
    decode_cluster_info,
    decode_topic_route,
    encode_broker_data,
    encode_cluster_info,
    encode_mapping,
    encode_member_group,
    encode_topic_route,
    quote_id_maps,
    quote_numeric_keys,
)
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

BROKER = BrokerData(
    broker_addrs={1: "10.0.0.2:10911", 0: "10.0.0.1:10911", 10: "é"},
    broker_name="1",
    cluster="c1",
    enable_acting_master=False,
    zone_name="HZ",
)
MAPPING = TopicQueueMappingInfo("orders", "__global__", 4, "broker-a", 7, False, {1: 3, 0: 0})
ROUTE = TopicRouteData(
    broker_datas=[BROKER],
    filter_server_table={"2": ["10.0.0.1:31000"], "10.0.0.1:10911": []},
    order_topic_conf="broker-a:8",
    queue_datas=[QueueData(broker_name="1", perm=6, read_queue_nums=8, topic_sys_flag=0, write_queue_nums=4)],
    topic_queue_mapping_by_broker={"1": MAPPING},
)


def test_a_route_in_standard_json() -> None:
    assert encode_topic_route(ROUTE, numeric_keys=False).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911","10":"é"},"brokerName":"1",'
        '"cluster":"c1","enableActingMaster":false,"zoneName":"HZ"}],'
        '"filterServerTable":{"10.0.0.1:10911":[],"2":["10.0.0.1:31000"]},"orderTopicConf":"broker-a:8",'
        '"queueDatas":[{"brokerName":"1","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}],'
        '"topicQueueMappingByBroker":{"1":{"bname":"broker-a","currIdMap":{"0":0,"1":3},"dirty":false,"epoch":7,'
        '"scope":"__global__","topic":"orders","totalQueues":4}}}'
    )


def test_only_maps_of_numbers_differ_in_the_numeric_dialect() -> None:
    standard = encode_topic_route(ROUTE, numeric_keys=False)
    expected = standard.replace(
        b'{"0":"10.0.0.1:10911","1":"10.0.0.2:10911","10":', b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911",10:'
    )
    assert encode_topic_route(ROUTE, numeric_keys=True) == expected.replace(b'{"0":0,"1":3}', b"{0:0,1:3}")


def test_nulls_are_left_out_and_empty_maps_and_lists_kept() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={}, broker_name="a", cluster="c", enable_acting_master=True)],
        filter_server_table={},
        queue_datas=[],
        topic_queue_mapping_by_broker={"b": TopicQueueMappingInfo()},
    )
    assert encode_topic_route(route, numeric_keys=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{},"brokerName":"a","cluster":"c","enableActingMaster":true}],'
        b'"filterServerTable":{},"queueDatas":[],'
        b'"topicQueueMappingByBroker":{"b":{"dirty":false,"epoch":0,"totalQueues":0}}}'
    )


@pytest.mark.parametrize("numeric_keys", [False, True])
def test_both_dialects_read_back(numeric_keys: bool) -> None:
    assert decode_topic_route(encode_topic_route(ROUTE, numeric_keys=numeric_keys)) == ROUTE
    assert encode_broker_data(BROKER, numeric_keys=numeric_keys) in encode_topic_route(ROUTE, numeric_keys=numeric_keys)
    assert encode_mapping(MAPPING, numeric_keys=numeric_keys) in encode_topic_route(ROUTE, numeric_keys=numeric_keys)


def test_what_older_releases_leave_out_is_read() -> None:
    """4.x has no enableActingMaster, 3.x no cluster."""
    group = b'{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b","cluster":"c"}'
    info = decode_cluster_info(b'{"brokerAddrTable":{"b":' + group + b'},"clusterAddrTable":{"c":["b"]}}')
    read = BrokerData(broker_addrs={0: "10.0.0.1:10911"}, broker_name="b", cluster="c", enable_acting_master=False)
    assert info == ClusterInfo(broker_addr_table={"b": read}, cluster_addr_table={"c": ["b"]})
    assert decode_topic_route(b'{"brokerDatas":[' + group + b"]}").broker_datas == [read]


def test_cluster_info_and_member_group_have_numeric_keys() -> None:
    info = ClusterInfo(broker_addr_table={"1": BROKER}, cluster_addr_table={"7": ["1"], "10": []})
    data = encode_cluster_info(info)
    assert data.startswith(b'{"brokerAddrTable":{"1":{"brokerAddrs":{0:"10.0.0.1:10911",')
    assert data.endswith(b'"clusterAddrTable":{"10":[],"7":["1"]}}')
    assert decode_cluster_info(data) == info
    assert encode_member_group("c", "b", {1: "x", 0: "y"}) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"y",1:"x"},"brokerName":"b","cluster":"c"}}'
    )
    assert encode_member_group(None, None, {}) == b'{"brokerMemberGroup":{"brokerAddrs":{}}}'


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [
        ('{0:"a",1 : "b"}', '{"0":"a","1" : "b"}'),
        ('{"a":[{-5:1},{ 6:[7,8]}]}', '{"a":[{"-5":1},{ "6":[7,8]}]}'),
        ('{"{1:":",2:",3:"\\"{4:"}', '{"{1:":",2:","3":"\\"{4:"}'),
        ('{"a":"x\\\\",1:2}', '{"a":"x\\\\","1":2}'),
        ("[1,2,3]", "[1,2,3]"),
        ("", ""),
        ('{"a', '{"a'),
        ('{"a\\', '{"a\\'),
    ],
)
def test_bare_keys_are_quoted_outside_of_strings(bare: str, quoted: str) -> None:
    assert quote_numeric_keys(bare.encode()).decode() == quoted


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [
        ('{"currIdMap":{0:5, -1 :6}}', '{"currIdMap":{"0":5, "-1" :6}}'),
        (
            '{"brokerAddrs" : { 0:"a,1:{\\"", 7:"b"},"currIdMap":{}}',
            '{"brokerAddrs" : { "0":"a,1:{\\"", "7":"b"},"currIdMap":{}}',
        ),
        ('{"a":{0:1},1:2}', '{"a":{0:1},1:2}'),
        ('{"a":"\\"currIdMap\\":{0:1}"}', '{"a":"\\"currIdMap\\":{0:1}"}'),
        ('{"currIdMap":{0:{1:2}}}', '{"currIdMap":{0:{1:2}}}'),
        ('{"currIdMap":{0:1', '{"currIdMap":{0:1'),
    ],
)
def test_bare_keys_of_foreign_json_are_quoted_in_both_maps(bare: str, quoted: str) -> None:
    assert quote_id_maps(bare.encode(), 10).decode() == quoted


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(alphabet='a{,:1"\\ \n', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(-3, 30), inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a{,:1"\\', max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def as_text_keys(value: Any) -> Any:
    """What remains of a value in JSON: keys are text, and nulls in objects are left out."""
    if isinstance(value, dict):
        return {str(key): as_text_keys(item) for key, item in value.items() if item is not None}
    return [as_text_keys(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_whatever_fastjson_writes_is_read(value: Any) -> None:
    data = java_encode(value)
    assert decode(data, msgspec.json.Decoder()) == as_text_keys(value) == parse_fastjson(data.decode())[0]


@given(st.text(alphabet='{}[],:"\\12 a-', max_size=30))
def test_quoting_never_changes_what_is_json_already(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        return
    assert json.loads(quote_numeric_keys(text.encode())) == expected
    assert json.loads(quote_id_maps(text.encode(), 10)) == expected


@pytest.mark.parametrize("pattern", [b"{", b",", b'"', b'\\"', b"{ ", b"{1", b', "', b"{  1  ", b'"\\'])
def test_quoting_takes_linear_time(pattern: bytes) -> None:
    # Two million characters twice over would take hours if each were looked at from each.
    start = time.monotonic()
    for prefix in (b"", b'"', b"{", b"{1"):
        quote_numeric_keys(prefix + pattern * (500_000 // len(pattern)))
        map_ = b'"currIdMap":{'
        for more in (pattern, map_ + pattern, map_ + pattern + pattern, pattern + map_):
            quote_id_maps(prefix + map_ + more * (500_000 // len(more)), 1_000_000)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("data", [b"", b"x", b"{1:2", b"\xff", b'{"brokerDatas":1}'])
def test_json_that_is_no_route_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_topic_route(data)

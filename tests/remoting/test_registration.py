# SPDX-License-Identifier: Apache-2.0
"""The body of REGISTER_BROKER in all its forms, and what is wrong with the ones that are refused."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.histories import strategies
from dev.histories.steps import Send, Step
from dev.model import bodies as oracle
from dev.model.headers import JavaError
from remoting.codec.registration import (
    Registration,
    decode_data_version,
    decode_registration,
    decode_topic_queues,
    inflated_bytes,
    inflates_beyond,
)
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.codes import RequestCode
from schemas.errors import BadRequestError
from schemas.events import RegisterTopicQueue

VERSION = {"counter": 3, "stateVersion": 1, "timestamp": 1_700_000_000_000}
ORDERS = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 1,
    "writeQueueNums": 4,
}
MAPPING = {
    "bname": "broker-a",
    "currIdMap": {"0": 0, "1": 3},
    "dirty": False,
    "epoch": 7,
    "scope": "__global__",
    "topic": "orders",
    "totalQueues": 4,
}
MAPPING_INFO = TopicQueueMappingInfo("orders", "__global__", 4, "broker-a", 7, False, {0: 0, 1: 3})


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def wrapper(table: object = None, **more: object) -> dict[str, object]:
    return {"dataVersion": VERSION, "topicConfigTable": {"orders": ORDERS} if table is None else table, **more}


def envelope(table: object = None, servers: object = (), **more: object) -> bytes:
    return dump({"filterServerList": servers, "topicConfigSerializeWrapper": wrapper(table, **more)})


def block(data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if length is None else length) + data


def count(number: int) -> bytes:
    return struct.pack(">i", number)


def lines(*topics: bytes) -> bytes:
    return count(len(topics)) + b"".join(map(block, topics))


LINE = b"orders 8 4 6 SINGLE_TAG {}"
SERVERS = block(b"[]")


def compressed(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(parts), 9)


def plain(body: bytes, version: int = 513) -> Registration:
    return decode_registration(body, version)


def inflated(body: bytes, version: int = 513, limit: int = 1_000_000) -> Registration:
    return decode_registration(body, version, compressed=True, inflated_limit_bytes=limit)


# --- plain ---


def test_a_stock_body() -> None:
    body = envelope(servers=["10.0.0.1:31000"], topicQueueMappingInfoMap={"orders": MAPPING})
    assert plain(body) == Registration(
        DataVersion(1, 1_700_000_000_000, 3),
        {"orders": QueueRow(8, 4, 6, 1)},
        {"orders": MAPPING_INFO},
        ["10.0.0.1:31000"],
    )


def test_absent_fields_take_their_defaults() -> None:
    found = plain(envelope({"a": {"topicName": "a"}}, topicQueueMappingInfoMap={"a": {"bname": "b"}}))
    assert found.topic_config_table == {"a": QueueRow(16, 16, 6, 0)}
    assert found.topic_queue_mapping_info_map == {"a": TopicQueueMappingInfo(None, "__global__", 0, "b", 0, False, {})}


def test_an_empty_object_is_a_registration_without_anything() -> None:
    assert decode_registration(b"{}", 513, now_ms=77) == Registration(DataVersion(0, 77, 0), {}, {}, [])


def test_no_body_is_a_registration_without_topics() -> None:
    assert plain(b"") == Registration(DataVersion(0, 0, 0), {}, {}, [])
    assert plain(b"", version=36).filter_server_list is None


def test_null_filter_servers_and_mappings() -> None:
    found = plain(envelope(servers=None, topicQueueMappingInfoMap=None))
    assert found.filter_server_list is None
    assert found.topic_queue_mapping_info_map == {}


def test_rows_go_by_the_name_inside_the_entry() -> None:
    assert plain(envelope({"key": ORDERS})).topic_config_table.keys() == {"orders"}


def test_fastjson_s_bare_keys_are_understood() -> None:
    body = envelope(topicQueueMappingInfoMap={"orders": MAPPING}).replace(b'"0":0,"1":3', b"0:0,1:3")
    assert plain(body).topic_queue_mapping_info_map == {"orders": MAPPING_INFO}


def test_numbers_may_be_text() -> None:
    body = envelope({"orders": {**ORDERS, "perm": "6", "readQueueNums": "8"}})
    assert plain(body).topic_config_table == {"orders": QueueRow(8, 4, 6, 1)}


def test_equal_rows_are_shared() -> None:
    rows = plain(envelope({name: {**ORDERS, "topicName": name} for name in "abc"})).topic_config_table
    assert len(rows) == 3
    assert len({id(row) for row in rows.values()}) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"x", "Failed to decode RegisterBrokerBody"),
        (b"null", "Failed to decode"),
        (b"[]", "Failed to decode"),
        (b"{", "Failed to decode"),
        (b"\xff", "Failed to decode"),
        (b"[" * 10_000, "Failed to decode"),
        (b'{"x":' * 10_000, "Failed to decode"),
        (zlib.compress(b"x"), "Failed to decode"),
        (dump({"topicConfigSerializeWrapper": None}), "Failed to decode"),
        (dump({"topicConfigSerializeWrapper": {"topicConfigTable": None}}), "Failed to decode"),
        (dump({"topicConfigSerializeWrapper": {"topicConfigTable": {"a": None}}}), "Failed to decode"),
        (dump({"filterServerList": [None]}), "Failed to decode"),
        (envelope({"a": {}}), "without topicName"),
        (envelope({"a": {"topicName": None}}), "without topicName"),
        (envelope({"a": {"topicName": "a\nb"}}), "control character"),
        (envelope({"a": {"topicName": "é" * 513}}), "longer than 1024 bytes"),
        (envelope({"a": {**ORDERS, "perm": 1 << 31}}), "Failed to decode"),
        (envelope({"a": {**ORDERS, "perm": "six"}}), "Failed to decode"),
        (envelope(servers=["a\x00b"]), "control character"),
        (envelope(topicQueueMappingInfoMap={"a": {}}), "no bname"),
        (envelope(topicQueueMappingInfoMap={"a": {"bname": ""}}), "bname is empty"),
        (envelope(topicQueueMappingInfoMap={"a\0": {"bname": "b"}}), "control character"),
    ],
)
def test_a_plain_body_that_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason):
        plain(body)


def test_a_long_name_of_few_bytes_is_no_problem() -> None:
    names = ["x" * 1024, "é" * 512, "%RETRY%" + "g" * 248, "名前 🐰", ""]
    table = {name: {"topicName": name} for name in names}
    assert plain(envelope(table)).topic_config_table.keys() == set(names)


# --- versions ---


def test_before_3_0_11_the_body_is_the_bare_wrapper() -> None:
    found = plain(dump(wrapper()), version=36)
    assert found == Registration(DataVersion(1, 1_700_000_000_000, 3), {"orders": QueueRow(8, 4, 6, 1)}, {}, None)


def test_an_envelope_with_version_0_is_an_empty_table() -> None:
    assert plain(envelope(), version=0).topic_config_table == {}


@pytest.mark.parametrize("version", [612, 613, 100_000])
def test_a_version_from_the_future_counts_as_the_highest(version: int) -> None:
    body = compressed(block(dump(VERSION)), lines(LINE), SERVERS, count(0))
    assert inflated(body, version).topic_config_table == {"orders": QueueRow(8, 4, 6, 0)}


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(BadRequestError, match="version -1"):
        plain(b"", version=-1)


# --- compressed ---


def test_a_compressed_body() -> None:
    body = compressed(
        block(dump(VERSION)),
        lines(LINE, b"a 1 2 +3 MULTI_TAG"),
        block(b'["10.0.0.1:31000"]'),
        count(1),
        block(dump(MAPPING).replace(b'"0":0,"1":3', b"0:0,1:3")),
    )
    assert inflated(body) == Registration(
        DataVersion(1, 1_700_000_000_000, 3),
        {"orders": QueueRow(8, 4, 6, 0), "a": QueueRow(1, 2, 3, 0)},
        {"orders": MAPPING_INFO},
        ["10.0.0.1:31000"],
    )


def test_before_5_0_0_there_are_no_mappings() -> None:
    body = compressed(block(dump(VERSION)), lines(LINE), SERVERS)
    assert inflated(body, version=401).topic_config_table == {"orders": QueueRow(8, 4, 6, 0)}
    with pytest.raises(BadRequestError, match="ends too early"):
        inflated(body, version=413)


def test_what_follows_the_zlib_stream_is_not_looked_at() -> None:
    body = compressed(block(dump(VERSION)), lines(LINE), SERVERS, count(0))
    assert inflated(body + b"junk", limit=1 << 20).topic_config_table.keys() == {"orders"}


@pytest.mark.parametrize(("servers", "found"), [(b"null", None), (b"x", []), (b'{"a":1}', []), (b"[]", [])])
def test_filter_servers_that_cannot_be_parsed_are_none(servers: bytes, found: list[str] | None) -> None:
    body = compressed(block(dump(VERSION)), lines(LINE), block(servers), count(0))
    assert inflated(body).filter_server_list == found


DATA_VERSION = block(dump(VERSION))


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        dump(VERSION),
        zlib.compress(DATA_VERSION + lines(LINE) + SERVERS + count(0), 9)[2:-4],  # raw deflate, as rocketmq-rust reads
        zlib.compress(DATA_VERSION + lines(LINE) + SERVERS + count(0))[:-40],
        compressed(),
        compressed(b"\0\0"),
        compressed(block(b"null")),
        compressed(block(b"{}", -1)),
        compressed(block(b"{}", 3)),
        compressed(block(b"{}", 0x7FFFFFFF)),
        compressed(DATA_VERSION, count(-1), SERVERS, count(0)),
        compressed(DATA_VERSION, count(0x7FFFFFFF), block(LINE), SERVERS, count(0)),
        compressed(DATA_VERSION, count(2), block(LINE), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"orders 8 4 6"), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"orders 8 4 6 "), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"orders 8 4 6 BOTH {}"), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"orders 8 4 1_0 SINGLE_TAG {}"), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"orders 8 4 2147483648 SINGLE_TAG {}"), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(b"a\x01 8 4 6 SINGLE_TAG {}"), SERVERS, count(0)),
        compressed(DATA_VERSION, lines(LINE), SERVERS, count(-1)),
        compressed(DATA_VERSION, lines(LINE), SERVERS, count(1), block(b"{}")),
        compressed(DATA_VERSION, lines(LINE), SERVERS, count(1), block(b"x")),
    ],
)
def test_a_compressed_body_that_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        inflated(body)


def test_a_zlib_bomb_is_refused_without_being_inflated() -> None:
    bomb = zlib.compress(bytes(200_000_000), 9)
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(BadRequestError, match="more than 1000000 bytes"):
            inflated(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_the_limit_itself_is_not_over_the_limit() -> None:
    data = DATA_VERSION + lines(LINE) + SERVERS + count(0)
    assert inflated(zlib.compress(data), limit=len(data)).topic_config_table
    with pytest.raises(BadRequestError, match="inflates to more"):
        inflated(zlib.compress(data), limit=len(data) - 1)


def test_a_hundred_thousand_topics_fit_both_ways() -> None:
    names = [f"topic-of-an-ordinary-length-{number:06d}" for number in range(100_000)]
    body = envelope({name: {**ORDERS, "topicName": name} for name in names})
    assert len(plain(body).topic_config_table) == 100_000
    packed = compressed(DATA_VERSION, lines(*(f"{name} 8 8 6 SINGLE_TAG {{}}".encode() for name in names)), SERVERS)
    found = decode_registration(packed, 409, compressed=True)
    assert len(found.topic_config_table) == 100_000


# --- against the oracle ---


def agree(body: bytes, version: int, compressed_: bool) -> None:
    """Both decode to the same, or both refuse; a table or version that is null is refused here alone."""
    try:
        expected = oracle.decode_registration(body, version, compressed_, now_ms=5)
    except (JavaError, ValueError, AttributeError, TypeError, struct.error):
        with pytest.raises(BadRequestError):
            decode_registration(body, version, compressed=compressed_, now_ms=5)
        return
    if expected.data_version is None or expected.topic_config_table is None:
        with pytest.raises(BadRequestError):
            decode_registration(body, version, compressed=compressed_, now_ms=5)
        return
    found = decode_registration(body, version, compressed=compressed_, now_ms=5)
    assert found.data_version == DataVersion(
        expected.data_version.state_version, expected.data_version.timestamp, expected.data_version.counter or 0
    )
    assert found.topic_config_table == {
        name: (row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag)
        for name, row in expected.topic_config_table.items()
    }
    assert found.filter_server_list == expected.filter_server_list
    assert {topic: info.bname for topic, info in found.topic_queue_mapping_info_map.items()} == {
        topic: info.bname for topic, info in (expected.topic_queue_mapping_info_map or {}).items()
    }


@given(strategies.histories(frozenset({RequestCode.REGISTER_BROKER}), max_steps=5))
def test_generated_registrations_decode_as_in_the_oracle(steps: list[Step]) -> None:
    for step in steps:
        assert isinstance(step, Send)
        request = step.request()
        agree(request.body, request.version, request.ext.get("compressed") == "true")


@given(st.binary(max_size=80), st.booleans(), st.sampled_from((0, 36, 37, 409, 513)))
def test_garbage_raises_only_bad_request_error(garbage: bytes, wrap: bool, version: int) -> None:
    for body, packed in ((garbage, False), (garbage, True), (zlib.compress(garbage), True)):
        with contextlib.suppress(BadRequestError):
            text = b'{"topicConfigSerializeWrapper":' + body if wrap else body
            decode_registration(text, version, compressed=packed)


# --- the two small bodies ---


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", None),
        (b"{}", DataVersion(0, 9, 0)),
        (dump(VERSION), DataVersion(1, 1_700_000_000_000, 3)),
        (b'{"counter":null,"timestamp":1}', DataVersion(0, 1, 0)),
    ],
)
def test_a_data_version(body: bytes, found: DataVersion | None) -> None:
    assert decode_data_version(body, now_ms=9) == found


@pytest.mark.parametrize("body", [b"x", b"null", b"[]", b'{"counter":9223372036854775808}'])
def test_a_data_version_that_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError, match="DataVersion"):
        decode_data_version(body)


def test_topic_queues() -> None:
    row: dict[str, Any] = {"brokerName": "a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 1, "writeQueueNums": 4}
    assert decode_topic_queues(dump({"queueDatas": [row, {"perm": 2}], "brokerDatas": None})) == [
        RegisterTopicQueue("a", 8, 4, 6, 1),
        RegisterTopicQueue("", 0, 0, 2, 0),
    ]
    assert decode_topic_queues(b"") == decode_topic_queues(b"{}") == decode_topic_queues(b'{"queueDatas":null}') == []
    with pytest.raises(BadRequestError, match="TopicRouteData"):
        decode_topic_queues(b'{"queueDatas":[null]}')


def test_a_block_beyond_its_bound_is_not_decoded() -> None:
    with pytest.raises(BadRequestError, match="a DataVersion of"):
        decode_data_version(b'{"counter":1' + b" " * 1024 + b"}")
    with pytest.raises(BadRequestError, match="a TopicRouteData of"):
        decode_topic_queues(b'{"queueDatas":[]' + b" " * 256 * 1024 + b"}")


@given(st.integers(0, 3 * 1024 * 1024), st.sampled_from([1000, 128 * 1024, 1024 * 1024]))
def test_what_a_body_becomes_is_known_before_it_is_decoded(size_bytes: int, bound: int) -> None:
    body = zlib.compress(bytes(size_bytes))
    assert inflates_beyond(body, bound) == (size_bytes > bound)
    assert inflated_bytes(body, bound) == min(size_bytes, bound)


def test_what_is_no_zlib_stream_becomes_nothing() -> None:
    assert not inflates_beyond(b"x" * 5000, 1000)
    assert inflated_bytes(b"x" * 5000, 1000) == 0

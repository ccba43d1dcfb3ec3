# SPDX-License-Identifier: Apache-2.0
"""Requests to events: what is asked for, what silently does nothing, and what is refused with which remark."""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from remoting.codec.commands import (
    EVENT_CODES,
    BrokerHeader,
    RefusedError,
    RequestContext,
    read_bool,
    read_broker_header,
    read_int,
    read_long,
    read_route_query,
    read_topic_registration,
    rows_to_register,
    to_event,
)
from remoting.codec.frame import RemotingCommand
from remoting.codec.names import may_exist
from remoting.codec.reply import encode_data_version, encode_kv_table, encode_topic_list, failure, not_supported
from schemas.broker import DataVersion, QueueRow
from schemas.codes import RequestCode
from schemas.errors import BadRequestError, InDoubtError, NotFoundError, SetupError, UnavailableError
from schemas.events import (
    Actor,
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    Channel,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopicQueue,
    UnregisterBroker,
    WipeWritePerm,
    decode,
    encode,
    topic_config_digest,
)

ACTOR = Actor("gateway-1", "remoting", "192.0.2.1:5")
CHANNEL = Channel("gateway-1", "c-1")
BROKER = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c1", "brokerId": "0"}
BODY = json.dumps(
    {
        "filterServerList": ["10.0.0.1:31000"],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "stateVersion": 2, "timestamp": 3},
            "topicConfigTable": {"orders": {"topicName": "orders"}},
        },
    }
).encode()


def event(code: int, ext: dict[str, str] | None = None, body: bytes = b"", version: int = 513) -> AnyEvent | None:
    return to_event(RemotingCommand(code, ext, body, version=version), RequestContext(ACTOR, CHANNEL))


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in BROKER.items() if key != name}


# --- 103 ---


def test_a_registration_with_everything() -> None:
    ext = {
        **BROKER,
        "brokerId": "1",
        "haServerAddr": "10.0.0.1:10912",
        "heartbeatTimeoutMillis": "10000",
        "enableActingMaster": "True",
        "bodyCrc32": str(zlib.crc32(BODY) & 0x7FFFFFFF),
        "compressed": "false",
        "__ZONE_NAME": "HZ",
    }
    table = {"orders": QueueRow(16, 16, 6, 0)}
    assert event(103, ext, BODY) == RegisterBroker(
        actor=ACTOR,
        cluster_name="c1",
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        broker_id=1,
        data_version=DataVersion(2, 3, 1),
        topic_config_digest=topic_config_digest(table),
        topic_config_table=table,
        filter_server_list=["10.0.0.1:31000"],
        ha_server_addr="10.0.0.1:10912",
        heartbeat_timeout_millis=10000,
        enable_acting_master=True,
        zone_name="HZ",
        channel=CHANNEL,
    )


def test_a_registration_with_nothing_but_its_names() -> None:
    found = event(103, BROKER)
    assert isinstance(found, RegisterBroker)
    assert found.topic_config_table == {}
    assert found.data_version == DataVersion(0, 0, 0)
    assert found.filter_server_list == []
    absent = (found.ha_server_addr, found.heartbeat_timeout_millis, found.enable_acting_master, found.zone_name)
    assert absent == (None,) * 4


def test_a_data_version_without_timestamp_is_of_now() -> None:
    found = to_event(RemotingCommand(103, BROKER, b"{}"), RequestContext(ACTOR, now_ms=77))
    assert isinstance(found, RegisterBroker)
    assert found.data_version == DataVersion(0, 77, 0)


@pytest.mark.parametrize("crc", ["0", "", "x", "+0", "99999999999"])
def test_a_checksum_that_is_zero_or_none_is_not_checked(crc: str) -> None:
    assert event(103, {**BROKER, "bodyCrc32": crc}, BODY) is not None


@pytest.mark.parametrize("body", [BODY, b"", b"not even JSON"])
def test_a_wrong_checksum_is_refused_before_anything_else_is_looked_at(body: bytes) -> None:
    with pytest.raises(RefusedError, match=r"^crc32 not match$") as caught:
        event(103, {"bodyCrc32": "12345"}, body, version=-1)
    assert (caught.value.code, caught.value.ext_fields) == (1, {})


@pytest.mark.parametrize(
    "ext", [None, {}, without("brokerId"), {**BROKER, "brokerId": "zero"}, {**BROKER, "brokerId": ""}]
)
def test_a_registration_without_broker_id_is_refused(ext: dict[str, str] | None) -> None:
    with pytest.raises(RefusedError, match="brokerId") as caught:
        event(103, ext, BODY)
    assert (caught.value.code, caught.value.ext_fields) == (1, None)


@pytest.mark.parametrize("name", ["brokerName", "clusterName", "brokerAddr"])
def test_a_registration_without_a_name_does_nothing(name: str) -> None:
    assert event(103, without(name), BODY) is None


def test_an_undecodable_body_is_refused_even_without_names() -> None:
    with pytest.raises(RefusedError, match="Failed to decode RegisterBrokerBody") as caught:
        event(103, {"brokerId": "0"}, b"{")
    assert caught.value.ext_fields is None


def test_a_stock_5_x_broker_that_compresses_without_saying_so_is_refused() -> None:
    with pytest.raises(RefusedError, match="Failed to decode"):
        event(103, {**BROKER, "compressed": "false"}, zlib.compress(b"whatever"))


def test_a_compressed_registration() -> None:
    def block(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    body = block(b'{"counter":1}') + b"\0\0\0\1" + block(b"orders 4 4 6 SINGLE_TAG {}") + block(b"[]") + b"\0\0\0\0"
    found = event(103, {**BROKER, "compressed": "TRUE"}, zlib.compress(body))
    assert isinstance(found, RegisterBroker)
    assert found.topic_config_table == {"orders": QueueRow(4, 4, 6, 0)}


@pytest.mark.parametrize(
    ("ext", "reason"),
    [
        ({"brokerName": ""}, "brokerName is empty"),
        ({"clusterName": ""}, "clusterName is empty"),
        ({"brokerAddr": ""}, "brokerAddr is empty"),
        ({"brokerName": "a\nb"}, "brokerName holds a control character"),
        ({"brokerName": "a" * 241}, "brokerName is longer than 240 bytes when percent-encoded"),
        ({"brokerName": "é" * 41}, "brokerName is longer than 240 bytes when percent-encoded"),
        ({"clusterName": "c" * 1025}, "clusterName is longer than 1024 bytes"),
        ({"brokerAddr": "1.2.3.4:5\x00"}, "brokerAddr holds a control character"),
        ({"haServerAddr": "h" * 1025}, "haServerAddr is longer"),
        ({"__ZONE_NAME": "\x7f"}, "__ZONE_NAME holds a control character"),
    ],
)
def test_names_that_cannot_be_stored_are_refused(ext: dict[str, str], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as caught:
        event(103, {**BROKER, **ext}, BODY)
    assert caught.value.code == 1


@pytest.mark.parametrize("name", ["a" * 240, "é" * 40, "broker a/b%2F..", "名前", ".."])
def test_odd_names_that_can_be_stored_are_taken(name: str) -> None:
    found = event(103, {**BROKER, "brokerName": name}, BODY)
    assert isinstance(found, RegisterBroker)
    assert found.broker_name == name


# --- the others ---


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (
            100,
            {"namespace": "n", "key": "k", "value": "v"},
            PutKvConfig(actor=ACTOR, namespace="n", key="k", value="v"),
        ),
        (100, {"namespace": "", "key": ""}, PutKvConfig(actor=ACTOR, namespace="", key="")),
        (102, {"namespace": "n", "key": "k"}, DeleteKvConfig(actor=ACTOR, namespace="n", key="k")),
        (102, {"namespace": "n"}, None),
        (102, None, None),
        (102, {"namespace": "n", "key": "k\x00"}, None),
        (
            104,
            BROKER,
            UnregisterBroker(
                actor=ACTOR, cluster_name="c1", broker_name="broker-a", broker_addr="10.0.0.1:10911", broker_id=0
            ),
        ),
        (
            104,
            without("brokerId"),
            UnregisterBroker(
                actor=ACTOR, cluster_name="c1", broker_name="broker-a", broker_addr="10.0.0.1:10911", broker_id=None
            ),
        ),
        (104, without("brokerName"), None),
        (104, without("clusterName"), None),
        (104, {**BROKER, "brokerAddr": ""}, None),
        (104, {**BROKER, "brokerName": "a" * 300}, None),
        (205, {"brokerName": "broker-a"}, WipeWritePerm(actor=ACTOR, broker_name="broker-a")),
        (205, {"brokerName": ""}, None),
        (205, None, None),
        (327, {"brokerName": "broker-a"}, AddWritePerm(actor=ACTOR, broker_name="broker-a")),
        (327, {}, None),
        (216, {"topic": "t"}, DeleteTopic(actor=ACTOR, topic="t")),
        (216, {"topic": "t", "clusterName": "c"}, DeleteTopic(actor=ACTOR, topic="t", cluster_name="c")),
        (216, {"topic": "t", "clusterName": ""}, DeleteTopic(actor=ACTOR, topic="t")),
        (216, {"topic": "t", "clusterName": "c\n"}, None),
        (216, {"topic": "t" * 1025}, None),
        (216, {"clusterName": "c"}, None),
        (216, None, None),
    ],
)
def test_admin_requests(code: int, ext: dict[str, str] | None, expected: AnyEvent | None) -> None:
    assert event(code, ext) == expected
    if expected is not None:
        assert decode(encode(expected)) == expected


@pytest.mark.parametrize("ext", [None, {}, {"namespace": "n"}, {"key": "k"}])
def test_a_kv_put_without_namespace_or_key_is_refused_in_rocketmq_s_words(ext: dict[str, str] | None) -> None:
    with pytest.raises(RefusedError, match=r"^namespace or key is null$") as caught:
        event(100, ext)
    assert caught.value.ext_fields is None


@pytest.mark.parametrize("ext", [{"namespace": "n\x00", "key": "k"}, {"namespace": "n", "key": "k" * 1025}])
def test_a_kv_put_under_a_name_that_cannot_be_stored_is_refused(ext: dict[str, str]) -> None:
    with pytest.raises(RefusedError):
        event(100, ext)


@pytest.mark.parametrize("code", [322, 904])
def test_a_heartbeat(code: int) -> None:
    assert event(code, BROKER, b'{"counter":1}' if code == 322 else b"") == BrokerHeartbeat(
        actor=ACTOR, cluster_name="c1", broker_name="broker-a", broker_addr="10.0.0.1:10911"
    )


@pytest.mark.parametrize("code", [322, 904])
def test_a_heartbeat_without_cluster_or_address_is_refused(code: int) -> None:
    for ext in (None, without("clusterName"), without("brokerAddr")):
        with pytest.raises(RefusedError, match="null"):
            event(code, ext)


@pytest.mark.parametrize("code", [322, 904])
def test_a_heartbeat_of_nobody_does_nothing(code: int) -> None:
    for ext in (without("brokerName"), {**BROKER, "brokerAddr": ""}, {**BROKER, "clusterName": "c\n"}):
        assert event(code, ext) is None


def test_a_version_query_with_a_broken_body_is_refused() -> None:
    with pytest.raises(RefusedError, match="DataVersion"):
        event(322, BROKER, b"x")


def test_a_topic_registration() -> None:
    row = {"brokerName": "a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
    body = json.dumps({"queueDatas": [row]}).encode()

    def read(ext: dict[str, str] | None, body: bytes) -> tuple[str, list[RegisterTopicQueue]] | None:
        return read_topic_registration(RemotingCommand(217, ext, body))

    assert read({"topic": "t"}, body) == ("t", [RegisterTopicQueue("a", 8, 8, 6, 0)])
    assert read(None, body) is read({"topic": "t"}, b"") is read({"topic": "t"}, b'{"queueDatas":[]}') is None
    for ext, data in (({"topic": "t\n"}, body), ({"topic": "t"}, b"x")):
        with pytest.raises(RefusedError):
            read(ext, data)


@pytest.mark.parametrize(
    ("rows", "topic_exists", "written"),
    [("ab", False, "ab"), ("axb", False, ""), ("axb", True, "a"), ("xab", True, ""), ("", True, "")],
)
def test_which_rows_of_a_topic_registration_are_written(rows: str, topic_exists: bool, written: str) -> None:
    sent = [RegisterTopicQueue(name, 8, 8, 6, 0) for name in rows]
    found = rows_to_register(sent, {"a": 1, "b": 2}, topic_exists=topic_exists)
    assert [row.broker_name for row in found] == list(written)


def test_every_code_with_an_event_has_a_name() -> None:
    assert set(RequestCode) >= EVENT_CODES
    with pytest.raises(KeyError):
        event(105)


# --- header fields ---


@pytest.mark.parametrize(
    ("text", "as_int", "as_long"),
    [
        ("5", 5, 5),
        ("+5", 5, 5),
        ("-5", -5, -5),
        ("2147483648", None, 2147483648),
        ("-2147483648", -2147483648, -2147483648),
        ("9223372036854775808", None, None),
        ("9" * 30, None, None),
        ("", None, None),
        (" 5", None, None),
        ("1_0", None, None),
        ("٣", None, None),
        ("5.0", None, None),
    ],
)
def test_numbers_in_text(text: str, as_int: int | None, as_long: int | None) -> None:
    command = RemotingCommand(103, {"n": text})
    assert (read_int(command, "n"), read_long(command, "n")) == (as_int, as_long)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("1", False), ("", False), (None, None)])
def test_booleans_in_text(text: str | None, value: bool | None) -> None:
    assert read_bool(RemotingCommand(103, {} if text is None else {"b": text}), "b") is value


def test_a_broker_header() -> None:
    assert read_broker_header(RemotingCommand(901, BROKER)) == BrokerHeader("c1", "broker-a", "10.0.0.1:10911", 0)
    assert read_broker_header(RemotingCommand(901)) == BrokerHeader(None, None, None, None)


# --- answers ---


def test_small_bodies() -> None:
    assert encode_topic_list(["a", 'q"']) == b'{"topicList":["a","q\\""]}'
    assert encode_topic_list([], "10.0.0.1:1") == b'{"brokerAddr":"10.0.0.1:1","topicList":[]}'
    assert encode_kv_table({"b": "2", "a": "é", "c": None}) == '{"table":{"a":"é","b":"2"}}'.encode()
    assert encode_kv_table({}) == b'{"table":{}}'
    assert encode_data_version(DataVersion(1, 2, 3)) == b'{"counter":3,"stateVersion":1,"timestamp":2}'


@pytest.mark.parametrize(
    ("error", "code", "remark", "ext_fields"),
    [
        (RefusedError("no", ext_fields={}), 1, "no", {}),
        (RefusedError("no", code=16), 16, "no", None),
        (BadRequestError("bad"), 1, "bad", None),
        (NotFoundError("gone", code=22), 22, "gone", None),
        (UnavailableError("later"), 2, "later", None),
        (InDoubtError("who knows"), 2, "who knows", None),
        (SetupError("set up"), 1, "set up", None),
        (ValueError("boom"), 1, "ValueError: boom", None),
    ],
)
def test_what_is_raised_becomes_an_answer(
    error: Exception, code: int, remark: str, ext_fields: dict[str, str] | None
) -> None:
    found = failure(error)
    assert (found.code, found.remark, found.ext_fields, found.is_response) == (code, remark, ext_fields, True)


def test_an_unknown_code_is_named_as_rocketmq_names_it() -> None:
    assert not_supported(31999).remark == " request type 31999 not supported"
    assert not_supported(31999).code == 3


@pytest.mark.parametrize(
    ("ext", "version", "found"),
    [
        ({"topic": "T"}, 401, ("T", False, None)),
        ({"topic": "T"}, 400, ("T", True, None)),
        ({"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "z1"}, 401, ("T", True, "z1")),
        ({"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": " "}, 401, ("T", False, None)),
        ({"topic": "T", "__ZONE_MODE": "true"}, 401, ("T", False, None)),
        ({"topic": "T", "__ZONE_MODE": "false", "__ZONE_NAME": "z1"}, 401, ("T", False, None)),
    ],
)
def test_what_a_route_is_asked_for(
    ext: dict[str, str], version: int, found: tuple[str | None, bool, str | None]
) -> None:
    assert read_route_query(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, version=version)) == found


@pytest.mark.parametrize("code", [RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG])
def test_settings_are_no_kv_entries(code: RequestCode) -> None:
    with pytest.raises(RefusedError, match="holds settings"):
        event(code, {"namespace": "routelake.namesrvConfig", "key": "k", "value": "v"})


@pytest.mark.parametrize(("name", "may"), [("orders", True), (None, False), ("a\0b", False), ("x" * 1025, False)])
def test_what_can_have_been_stored_under_a_name(name: str | None, may: bool) -> None:
    assert may_exist(name) is may

# SPDX-License-Identifier: Apache-2.0
"""What a broker sends, read by the NameServer's own decoder and by the oracle."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import msgspec
import pytest

from clients.broker import registration
from clients.broker.config import BrokerConfig
from clients.broker.registration import RegisterBrokerResult
from clients.broker.topic_config import TopicConfig, TopicTable, encode_entries
from dev.model import bodies as oracle
from dev.model.wire import V5_5_0
from remoting.codec.frame import RemotingCommand
from remoting.codec.registration import decode_registration, decode_topic_queues
from schemas.broker import DataVersion, QueueRow
from schemas.errors import BadRequestError
from schemas.events import RegisterTopicQueue

VERSION = DataVersion(1, 1_700_000_000_000, 7)
IDENTITY = {
    "brokerAddr": "10.0.0.1:10911",
    "brokerId": "0",
    "brokerName": "broker-a",
    "clusterName": "DefaultCluster",
}


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(broker_ip1="10.0.0.1", **settings)


def topic(name: str, **more: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=4, **more)


ORDERS = topic("orders", topic_sys_flag=1, order=True, attributes={"message.type": "FIFO"})
WIDE = topic("TBW102", perm=7)


def table(*topics: TopicConfig) -> TopicTable:
    return TopicTable(VERSION, {config.topic_name: config for config in topics})


def rows(command: RemotingCommand) -> dict[str, QueueRow]:
    """As the NameServer reads it; the oracle reads the same."""
    compressed = command.ext("compressed") == "true"
    assert command.ext("bodyCrc32") == str(zlib.crc32(command.body) & 0x7FFFFFFF)
    found = decode_registration(command.body, command.version, compressed=compressed)
    assert found.data_version == VERSION
    assert found.filter_server_list == []
    assert found.topic_queue_mapping_info_map == {}
    expected = oracle.decode_registration(command.body, V5_5_0, compressed, now_ms=0)
    assert expected.data_version == oracle.DataVersion(1, VERSION.timestamp, 7)
    assert {name: dataclasses.astuple(row)[1:] for name, row in (expected.topic_config_table or {}).items()} == {
        name: tuple(row) for name, row in found.topic_config_table.items()
    }
    return found.topic_config_table


def full(settings: BrokerConfig, *topics: TopicConfig) -> list[dict[str, QueueRow]]:
    parts = registration.full(settings, table(*topics))
    return [rows(registration.register_request(settings, part)) for part in parts]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_full_registration(compressed: bool) -> None:
    settings = config(compressed_register=compressed)
    (part,) = registration.full(settings, table(ORDERS, WIDE))
    command = registration.register_request(settings, part)
    assert command.code == 103
    flag = 0 if compressed else 1  # neither flags nor order travel in the compressed form
    assert rows(command) == {"orders": QueueRow(8, 4, 6, flag), "TBW102": QueueRow(8, 4, 7, 0)}
    fields = {name: value for name, value in (command.ext_fields or {}).items() if name != "bodyCrc32"}
    assert fields == {
        **IDENTITY,
        "compressed": str(compressed).lower(),
        "enableActingMaster": "false",
        "haServerAddr": "10.0.0.1:10912",
    }


def test_the_plain_body_is_the_stock_brokers() -> None:
    body = msgspec.json.decode(registration.plain_body(VERSION, encode_entries({"orders": ORDERS})))
    assert list(body) == ["filterServerList", "topicConfigSerializeWrapper"]
    assert list(body["topicConfigSerializeWrapper"]) == [
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    ]
    assert body["topicConfigSerializeWrapper"]["topicConfigTable"]["orders"] == {
        "attributes": {"message.type": "FIFO"},
        "order": True,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 1,
        "writeQueueNums": 4,
    }


def test_header_of_a_slave_that_may_act_as_master() -> None:
    settings = config(
        broker_id=2,
        enable_slave_acting_master=True,
        broker_not_active_timeout_millis=4_000,
        broker_ip2="10.0.9.1",
        ha_listen_port=77,
    )
    command = registration.register_request(settings, registration.full(settings, table())[0])
    assert command.ext("enableActingMaster") == "true"
    assert command.ext("heartbeatTimeoutMillis") == "4000"
    assert command.ext("brokerId") == "2"
    assert command.ext("haServerAddr") == "10.0.9.1:77"


def test_split_registration() -> None:
    settings = config(enable_split_registration=True, split_registration_size=2)
    topics = [topic(f"t{number}") for number in range(5)]
    assert [list(part) for part in full(settings, *topics)] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert [list(part) for part in full(settings, *topics[:4])] == [["t0", "t1"], ["t2", "t3"], []]
    assert [list(part) for part in full(settings)] == [[]]


@pytest.mark.parametrize("permission", [4, 2, 0])
def test_the_brokers_own_permission(permission: int) -> None:
    """The full form then loses topicSysFlag and order, the incremental one keeps the flag, 217 too."""
    settings = config(broker_permission=permission)
    assert full(settings, ORDERS, WIDE) == [
        {"orders": QueueRow(8, 4, 6 & permission, 0), "TBW102": QueueRow(8, 4, 7 & permission, 0)}
    ]
    part = registration.incremental(settings, [ORDERS], VERSION)
    assert rows(registration.register_request(settings, part)) == {"orders": QueueRow(8, 4, 6 & permission, 1)}
    (row,) = decode_topic_queues(registration.register_topic_request(settings, WIDE).body)
    assert row.perm == 7 & permission


def test_an_incremental_registration_carries_the_tables_version() -> None:
    part = registration.incremental(config(), [ORDERS], VERSION)
    assert rows(registration.register_request(config(), part)) == {"orders": QueueRow(8, 4, 6, 1)}


def test_one_topic_alone() -> None:
    command = registration.register_topic_request(config(), ORDERS)
    assert (command.code, command.ext_fields) == (217, {"topic": "orders"})
    assert decode_topic_queues(command.body) == [RegisterTopicQueue("broker-a", 8, 4, 6, 1)]


def test_the_other_requests() -> None:
    query = registration.query_data_version_request(config(), VERSION)
    assert (query.code, query.ext_fields) == (322, IDENTITY)
    assert query.body == b'{"counter":7,"stateVersion":1,"timestamp":1700000000000}'
    unregister = registration.unregister_request(config())
    assert (unregister.code, unregister.ext_fields, unregister.body) == (104, IDENTITY, b"")
    heartbeat = registration.heartbeat_request(config())
    without_id = {name: value for name, value in IDENTITY.items() if name != "brokerId"}
    assert (heartbeat.code, heartbeat.ext_fields) == (904, without_id)


def test_the_answer_to_a_registration() -> None:
    answer = RemotingCommand(0, {"masterAddr": "m:1", "haServerAddr": "m:2"}, b'{"table":{"a":"broker-a:8","b":null}}')
    assert registration.register_result(answer) == RegisterBrokerResult("m:1", "m:2", ("a", "b"))
    assert registration.register_result(RemotingCommand(0, {})) == RegisterBrokerResult()
    with pytest.raises(BadRequestError, match="no KVTable"):
        registration.register_result(RemotingCommand(0, {}, b"<html>"))


@pytest.mark.parametrize(
    ("answer", "needed"),
    [
        (RemotingCommand(0, {"changed": "false"}), False),
        (RemotingCommand(0, {"changed": "true"}), True),
        (RemotingCommand(0, {}), True),
        (RemotingCommand(0, {"changed": "false"}, b'{"counter":7,"stateVersion":1,"timestamp":1700000000000}'), False),
        (RemotingCommand(0, {"changed": "false"}, b'{"counter":8,"stateVersion":1,"timestamp":1700000000000}'), True),
        (RemotingCommand(0, {"changed": "false"}, b"{"), True),
        (RemotingCommand(1, {"changed": "true"}), False),
    ],
)
def test_whether_to_register(answer: RemotingCommand, needed: bool) -> None:
    assert registration.needs_registration(answer, VERSION) is needed

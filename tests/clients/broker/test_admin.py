# SPDX-License-Identifier: Apache-2.0
"""What a broker agent answers to mqadmin's requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clients.broker.topic_config import TopicConfig, decode_topic_table
from schemas.broker import DataVersion
from tests.clients.broker.namesrv import broker, namesrv, peer, run


def listed(*topics: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"topicConfigList": topics})


def test_create_update_and_update_to_the_same() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address) as agent, peer(agent) as admin:
            assert (await admin.update("orders", attributes="+message.type=FIFO", topicSysFlag=None)).code == 0
            assert server.queues("orders") == (8, 8, 6)
            assert server.codes == [103, 103]
            version = agent.topics.data_version
            # the same numbers without attributes: kept, but it counts as a change
            assert (await admin.update("orders")).code == 0
            assert agent.topics.table["orders"].attributes == {"message.type": "FIFO"}
            assert agent.topics.data_version.counter == version.counter + 1
            assert (await admin.update("plain", readQueueNums=4, writeQueueNums=2, perm=4, order="true")).code == 0
            assert agent.topics.table["plain"] == TopicConfig(
                topic_name="plain", read_queue_nums=4, write_queue_nums=2, perm=4, order=True
            )
            version, seen = agent.topics.data_version, len(server.codes)
            assert (await admin.update("plain", readQueueNums=4, writeQueueNums=2, perm=4, order="true")).code == 0
            assert agent.topics.data_version == version
            assert len(server.codes) == seen

    run(work())


@pytest.mark.parametrize(
    ("topic", "more", "code", "remark"),
    [
        (None, {}, 29, "The specified topic is blank."),
        (" ", {}, 29, "The specified topic is blank."),
        ("a b", {}, 29, "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, {}, 29, "is longer than topic max length: 127"),
        ("%RETRY%" + "x" * 249, {}, 29, "longer than topic max length: 255"),
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("broker-a", {}, 29, "The topic[broker-a] is conflict with system topic."),
        ("DefaultCluster", {}, 29, "is conflict with system topic."),
        ("rmq_sys_mine", {}, 29, "is conflict with system topic."),
        ("orders", {"readQueueNums": 0}, 29, "readQueueNums 0 and writeQueueNums 8 must both be at least 1"),
        ("orders", {"writeQueueNums": -1}, 29, "readQueueNums 8 and writeQueueNums -1 must both be at least 1"),
        ("orders", {"readQueueNums": None}, 1, "the field readQueueNums is missing"),
        ("orders", {"perm": "rw"}, 1, "the field perm is no number: 'rw'"),
        ("orders", {"topicFilterType": "ANY"}, 1, "topicFilterType = [ANY] value invalid"),
        ("orders", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ("orders", {"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        ("orders", {"attributes": "message.type"}, 1, "delete attribute format is wrong: message.type"),
    ],
)
def test_what_is_refused(topic: str | None, more: dict[str, Any], code: int, remark: str) -> None:
    async def work() -> None:
        async with broker() as agent, peer(agent) as admin:
            before = agent.topics.snapshot()
            answer = await admin.update(topic, **more)
            assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
            assert "\n" not in (answer.remark or "")
            assert agent.topics.snapshot() == before

    run(work())


def test_settings_that_allow_more() -> None:
    async def work() -> None:
        settings: dict[str, Any] = {"validate_system_topic_when_update_topic": False, "enable_mixed_message_type": True}
        async with broker(**settings) as agent, peer(agent) as admin:
            assert (await admin.update("TBW102", readQueueNums=3, attributes="+message.type=MIXED")).code == 0
            assert agent.topics.table["TBW102"].read_queue_nums == 3
            assert (await admin.ask(215, topic="TBW102")).code == 0

    run(work())


def test_a_list() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address) as agent, peer(agent) as admin:
            a = {"topicName": "a", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
            b = {"topicName": "b", "attributes": {"+message.type": "FIFO"}}
            assert (await admin.ask(18, listed(a, b))).code == 0
            assert server.codes == [103, 103]
            assert (server.queues("a"), server.queues("b")) == ((3, 3, 6), (16, 16, 6))
            assert agent.topics.data_version.counter == 2
            # one unchanged topic, and nothing is applied
            assert (await admin.ask(18, listed({"topicName": "c"}, a))).code == 0
            assert "c" not in agent.topics.table
            for bad, code in (
                ({"topicName": "a b"}, 29),
                ({"topicName": "TBW102"}, 29),
                ({"topicName": "d", "readQueueNums": 0}, 29),
                ({"topicName": "d", "attributes": {"colour": "red"}}, 1),
                ({}, 29),
            ):
                assert (await admin.ask(18, listed({"topicName": "c"}, bad))).code == code
            for body in (b"", b"{}", b"[]", b'{"topicConfigList":[1]}', b'{"topicConfigList":[{"perm":1e99}]}'):
                assert (await admin.ask(18, body)).code == 1
            assert (await admin.ask(18, listed())).code == 0
            assert agent.topics.data_version.counter == 2

    run(work())


def test_delete() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address) as agent, peer(agent) as admin:
            await admin.update("orders")
            assert (await admin.ask(215, topic="orders")).code == 0
            assert "orders" not in agent.topics.table
            assert server.queues("orders") == (8, 8, 6)  # the NameServer is not told
            assert (await admin.ask(215, topic="orders")).code == 0
            assert agent.topics.data_version.counter == 2
            for topic, remark in ((None, "blank"), ("", "blank"), ("TBW102", "conflict with system topic")):
                answer = await admin.ask(215, topic=topic)
                assert (answer.code, remark in (answer.remark or "")) == (29, True)

    run(work())


def test_reading_topics() -> None:
    async def work() -> None:
        async with broker(split_metadata_size=6) as agent, peer(agent) as admin:
            answer = await admin.ask(21)
            assert answer.ext_fields == {"totalTopicNum": "15"}
            assert decode_topic_table(answer.body) == agent.topics.snapshot()
            names: list[str] = []
            version = None
            while len(names) < 15:  # as stock clients page
                answer = await admin.ask(21, topicSeq=len(names), maxTopicNum=100, dataVersion=version)
                page = decode_topic_table(answer.body)
                version = msgspec.json.encode(page.data_version).decode()
                names += page.topic_config_table
                assert len(page.topic_config_table) <= 6
            assert names == sorted(agent.topics.table)
            old = msgspec.json.encode(DataVersion(0, 1, 1)).decode()
            assert (
                list(decode_topic_table((await admin.ask(21, topicSeq=6, dataVersion=old)).body).topic_config_table)
                == names[:6]
            )
            for name, value in (("dataVersion", "{"), ("dataVersion", ""), ("topicSeq", "x")):
                assert (await admin.ask(21, b"", **{name: value})).code == 1
            answer = await admin.ask(351, topic="TBW102")
            found, expected = msgspec.json.decode(answer.body), agent.topics.table["TBW102"]
            assert (found["topicName"], found["perm"]) == ("TBW102", expected.perm)
            assert (found["readQueueNums"], found["writeQueueNums"]) == (
                expected.read_queue_nums,
                expected.write_queue_nums,
            )
            answer = await admin.ask(351, topic="nobody")
            assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: nobody")
            system = msgspec.json.decode((await admin.ask(305)).body)["topicList"]
            assert {"TBW102", "broker-a", "CHECKPOINT_TOPIC"} <= set(system)

    run(work())


def test_reading_the_broker() -> None:
    async def work() -> None:
        async with broker() as agent, peer(agent) as admin:
            answer = await admin.ask(26)
            lines = answer.body.decode().splitlines()
            assert lines == sorted(lines)
            assert {"autoCreateTopicEnable=true", "brokerIP1=127.0.0.1", "brokerPermission=6"} <= set(lines)
            assert "version" in (answer.ext_fields or {})
            table = msgspec.json.decode((await admin.ask(28)).body)["table"]
            assert table["brokerVersionDesc"] == "V5_5_0"
            assert table["topicNumber"] == "15"
            assert table["brokerActive"] == "true"
            for code in (105, 202, 9999):
                assert (await admin.ask(code, topic="TBW102")).code == 3

    run(work())

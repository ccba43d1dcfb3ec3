# SPDX-License-Identifier: Apache-2.0
"""A broker agent with its port, its file and its NameServers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clients.broker import agent as agent_module
from clients.broker.agent import BrokerAgent
from clients.broker.broker_topics import TopicFile
from clients.broker.config import BrokerConfig
from clients.broker.topic_config import decode_topic_table
from dev.peers.java import free_port
from dev.support.loops import eventually
from remoting.codec.frame import RemotingCommand
from remoting.errors import AnswerError, ClientError, ConnectError
from schemas.errors import SetupError
from tests.clients.broker.namesrv import broker, namesrv, peer, run

EXISTS_BUT_NO_MESSAGES = 14


# --- life ---


def test_registered_from_start_to_stop() -> None:
    async def work() -> None:
        async with namesrv() as one, namesrv() as two:
            async with broker(one.address, two.address, broker_name="b1", broker_cluster_name="c1") as agent:
                for server in (one, two):
                    assert server.queues("TBW102") == (8, 8, 7)
                    assert server.queues("b1") == (1, 1, 7)
                    assert server.queues("c1") == (16, 16, 7)
                    route = server.route("TBW102")
                    assert route is not None
                    assert route.broker_datas[0].broker_addrs == {0: agent.config.broker_addr}
                assert [(result.address, result.error, result.attempts) for result in agent.registrar.last_results] == [
                    (one.address, None, 1),
                    (two.address, None, 1),
                ]
            for server in (one, two):
                assert server.codes == [103, 104]
                assert server.route("TBW102") is None

    run(work())


def test_a_dead_namesrv_hinders_nobody_and_is_found_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "RETRY_MS", 50)
    port = free_port()

    async def work() -> None:
        async with namesrv() as living, broker(living.address, f"127.0.0.1:{port}") as agent:
            assert living.queues("TBW102") == (8, 8, 7)
            _, dead = agent.registrar.last_results
            assert dead.address == f"127.0.0.1:{port}"
            assert isinstance(dead.error, ConnectError)
            assert dead.attempts == 3
            async with namesrv(port) as late:
                await eventually(lambda: late.queues("TBW102") == (8, 8, 7))
                await eventually(lambda: all(result.error is None for result in agent.registrar.last_results))
                assert living.codes == [103]  # the others are not bothered

    run(work())


def test_a_silent_namesrv_is_given_up_and_a_refusing_one_reported() -> None:
    async def work() -> None:
        async with namesrv() as silent, namesrv() as refusing, namesrv() as good:
            silent.open.clear()
            refusing.refuse = True
            async with broker(
                silent.address, refusing.address, good.address, register_broker_timeout_mills=2_000
            ) as agent:
                errors = [result.error for result in agent.registrar.last_results]
                assert isinstance(errors[0], ClientError)
                assert isinstance(errors[1], AnswerError)
                assert errors[2] is None
                assert good.queues("TBW102") == (8, 8, 7)
                silent.open.set()

    run(work())


def test_only_asks_when_registration_is_not_forced() -> None:
    async def work() -> None:
        async with namesrv() as one, namesrv() as two, broker(one.address, two.address, force_register=False) as agent:
            assert await agent.registrar.register_all(force=False) == []
            assert one.codes == two.codes == [103, 322]
            one.ask(104, **(one.requests[0].ext_fields or {}))
            assert len(await agent.registrar.register_all(force=False)) == 2  # one of them wants it, both get it
            assert one.codes == two.codes == [103, 322, 322, 103]

    run(work())


@pytest.mark.parametrize(("old", "code"), [(True, 322), (False, 904)])
def test_heartbeats(old: bool, code: int) -> None:
    async def work() -> None:
        async with (
            namesrv() as server,
            broker(
                server.address,
                enable_slave_acting_master=True,
                broker_heartbeat_interval=20,
                compatible_with_old_name_srv=old,
            ),
        ):
            assert server.requests[0].ext("heartbeatTimeoutMillis") == "10000"
            await eventually(lambda: server.codes.count(code) >= 3)
            assert all(request.is_oneway for request in server.requests if request.code == code)

    run(work())


def test_a_namesrv_that_hangs_holds_up_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "FIRST_ROUND_MS", 100)
    monkeypatch.setattr(agent_module, "FIRST_HEARTBEAT_MS", 10)

    async def work() -> None:
        async with (
            namesrv() as silent,
            namesrv() as living,
            broker(silent.address, living.address, enable_slave_acting_master=True, broker_heartbeat_interval=10),
        ):
            silent.open.clear()
            await eventually(lambda: silent.codes.count(103) == living.codes.count(103) == 2)
            beats = living.codes.count(322)
            await eventually(lambda: living.codes.count(322) >= beats + 10)
            silent.open.set()

    run(work())


def test_a_slave_learns_of_its_master() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, broker_id=1, ha_listen_port=1) as slave:
            assert (slave.master_addr, slave.registrar.master_ha_addr) == (None, None)
            async with broker(server.address, ha_listen_port=4711) as master:
                assert master.master_addr is None
                await slave.registrar.register_all(force=True)
                assert slave.master_addr == master.config.broker_addr
                assert slave.registrar.master_ha_addr == "127.0.0.1:4711"
            await slave.registrar.register_all(force=True)
            assert slave.master_addr is None
            assert slave.registrar.master_ha_addr == "127.0.0.1:4711"  # RocketMQ keeps it, too

    run(work())


def test_a_notice_of_the_smallest_id() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, broker_id=1) as agent:
            (connection,) = server.server.connections.values()
            connection.send(RemotingCommand(905, {"minBrokerId": "1", "minBrokerAddr": "a:1"}, flag=2))
            await eventually(lambda: agent.min_broker_id == 1)

    run(work())


def test_order_configuration_comes_with_the_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, store=tmp_path) as agent, peer(agent) as admin:
            await admin.update("orders")
            server.ask(100, namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:8")
            await agent.registrar.register_all(force=True)
            assert agent.topics.is_order_topic("orders")
            assert agent.topics.data_version.counter == 2
            stored = TopicFile(agent.config.topics_file).load().table
            assert stored is not None
            assert stored.topic_config_table["orders"].order

    run(work())


def test_split_single_topic_and_compressed_registration() -> None:
    async def work() -> None:
        async with (
            namesrv() as server,
            broker(
                server.address,
                enable_split_registration=True,
                split_registration_size=4,
                enable_single_topic_register=True,
                compressed_register=True,
            ) as agent,
            peer(agent) as admin,
        ):
            assert server.codes == [103] * 4  # 15 topics
            assert server.queues("rmq_sys_wheel_timer") == (1, 1, 6)
            await admin.update("orders", readQueueNums=5)
            assert server.codes[4:] == [217]
            assert server.queues("orders") == (5, 8, 6)

    run(work())


def test_a_broker_that_may_not_be_written_to() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, broker_permission=4) as agent, peer(agent) as client:
            assert server.queues("TBW102") == (8, 8, 4)
            await client.update("plain")
            assert server.queues("plain") == (8, 8, 4)
            await client.update("ordered", order="true")
            answer = await client.send("ordered")
            assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")
            assert (await client.send("plain")).code == EXISTS_BUT_NO_MESSAGES  # as in RocketMQ
            assert (await client.ask(36, group="g", offset=0)).code == 16

    run(work())


# --- creating topics while sending ---


def test_auto_creation(tmp_path: Path) -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, store=tmp_path) as agent, peer(agent) as client:
            answer = await client.send("orders")
            assert answer.code == EXISTS_BUT_NO_MESSAGES
            assert "it keeps no messages" in (answer.remark or "")
            assert server.queues("orders") == (4, 4, 6)
            assert server.codes == [103, 103]
            assert (await client.send("orders", queues=8)).code == EXISTS_BUT_NO_MESSAGES
            assert agent.topics.data_version.counter == 1
            stored = decode_topic_table(agent.config.topics_file.read_bytes())
            assert stored.data_version == agent.topics.data_version
            assert stored.topic_config_table["orders"].write_queue_nums == 4

    run(work())


def test_two_senders_at_once_create_it_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, store=tmp_path) as agent:
            async with peer(agent) as one, peer(agent) as two:
                senders = [sender.send("orders", queues=queues) for queues in (3, 5, 7) for sender in (one, two)]
                answers = await asyncio.gather(*senders)
                assert {answer.code for answer in answers} == {EXISTS_BUT_NO_MESSAGES}
            assert agent.topics.data_version.counter == 1
            assert server.codes.count(103) == 2
            assert server.queues("orders") == (3, 3, 6)

    run(work())


def test_many_changes_at_once_end_as_the_last_one(tmp_path: Path) -> None:
    """A NameServer takes a row in only with a version that is new to it."""

    async def work() -> None:
        async with namesrv() as server, broker(server.address, store=tmp_path) as agent, peer(agent) as admin:
            server.ask(100, namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:8")
            await asyncio.gather(
                *(admin.update("orders", readQueueNums=queues, writeQueueNums=queues) for queues in range(1, 40)),
                *(agent.registrar.register_all(force=True) for _ in range(5)),
                *(admin.send(f"topic-{number}") for number in range(5)),
            )
            orders = agent.topics.table["orders"]
            assert server.queues("orders") == (orders.read_queue_nums, orders.write_queue_nums, orders.perm)
            assert all(server.queues(f"topic-{number}") == (4, 4, 6) for number in range(5))
            assert decode_topic_table(agent.config.topics_file.read_bytes()) == agent.topics.snapshot()

    run(work())


def test_a_table_that_stays_locked() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, lock_timeout_s=0.05) as agent, peer(agent) as client:
            async with agent.broker_topics.lock:
                answer = await client.send("orders")
                assert (answer.code, answer.remark) == (17, "topic[orders] not exist, apply first please!")
                assert (await client.ask(36, group="g", offset=1)).code == 1
            assert (await client.send("orders")).code == EXISTS_BUT_NO_MESSAGES

    run(work())


@pytest.mark.parametrize(
    ("settings", "topic", "more", "code", "remark"),
    [
        ({"auto_create_topic_enable": False}, "orders", {}, 17, "topic[orders] not exist, apply first please!"),
        ({}, "orders", {"default": "nobody"}, 17, "topic[orders] not exist, apply first please!"),
        ({}, "orders", {"default": "BenchmarkTest"}, 17, "topic[orders] not exist, apply first please!"),
        ({}, "a b", {}, 29, "contains illegal characters"),
        ({}, "", {}, 29, "The specified topic is blank."),
        ({}, "x" * 128, {}, 29, "is longer than topic max length: 127"),
        ({}, "SCHEDULE_TOPIC_XXXX", {}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({}, "RMQ_SYS_TRANS_HALF_TOPIC", {}, 16, "is forbidden."),
        ({}, "orders", {"queue": 4}, 29, "request queueId[4] is illegal, TopicConfig [topicName=orders"),
        ({}, "orders", {"queues": 0}, 29, "request queueId[0] is illegal, TopicConfig [topicName=orders"),
        ({}, "orders", {"queues": -1}, 29, "readQueueNums=0, writeQueueNums=0"),
        ({}, "orders", {"queues": "many"}, 1, "the field defaultTopicQueueNums is no number: 'many'"),
        ({}, "orders", {"queue": None}, 1, "the field queueId is missing"),
    ],
)
def test_messages_that_are_refused(
    settings: dict[str, Any], topic: str, more: dict[str, Any], code: int, remark: str
) -> None:
    async def work() -> None:
        async with broker(**settings) as agent, peer(agent) as client:
            answer = await client.send(topic, **more)
            assert answer.code == code
            assert remark in (answer.remark or "")

    run(work())


def test_retry_topics_need_no_auto_creation() -> None:
    async def work() -> None:
        async with (
            namesrv() as server,
            broker(server.address, auto_create_topic_enable=False) as agent,
            peer(agent) as client,
        ):
            assert (await client.send("%RETRY%g", k="true")).code == EXISTS_BUT_NO_MESSAGES
            assert agent.topics.table["%RETRY%g"].topic_sys_flag == 2
            assert server.queues("%RETRY%g") == (1, 1, 6)
            assert (await client.send("orders", k="true")).code == 17

    run(work())


def test_unit_mode_and_the_long_header() -> None:
    async def work() -> None:
        async with broker() as agent, peer(agent) as client:
            await client.send("orders", k="true")
            assert agent.topics.table["orders"].topic_sys_flag == 1
            answer = await client.ask(
                10, topic="plain", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, unitMode="false"
            )
            assert answer.code == EXISTS_BUT_NO_MESSAGES
            assert agent.topics.table["plain"].topic_sys_flag == 0

    run(work())


def test_consumers_get_their_retry_topic() -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address) as agent, peer(agent) as client:
            await client.update("ordered", order="true")
            body = (
                b'{"clientID":"c","consumerDataSet":[{"groupName":"g1","unitMode":true,"subscriptionDataSet":'
                b'[{"topic":"ordered","subString":"*"}]},{"groupName":"g2"}],"producerDataSet":[{"groupName":"p"}]}'
            )
            assert (await client.ask(34, body)).code == 0
            assert server.queues("%RETRY%g1") == (1, 1, 6)
            assert agent.topics.table["%RETRY%g1"].order
            assert agent.topics.table["%RETRY%g1"].topic_sys_flag == 2
            assert not agent.topics.table["%RETRY%g2"].order
            counter = agent.topics.data_version.counter
            assert (await client.ask(34, body)).code == 0
            assert agent.topics.data_version.counter == counter
            answer = await client.ask(36, group="g3", offset=17, unitMode="false", delayLevel=0)
            assert (answer.code, answer.remark) == (1, "look message by offset failed, 17")
            assert server.queues("%RETRY%g3") == (1, 1, 6)
            assert (await client.ask(35, clientID="c")).code == 0
            assert (await client.ask(34, b"{")).code == 1
            assert (await client.ask(34, b'{"consumerDataSet":[{"groupName":"a b"}]}')).code == 29
            assert (await client.ask(36, group="", offset=17)).code == 29

    run(work())


# --- restart ---


def test_restart_from_the_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with namesrv() as server:
            async with broker(server.address, store=tmp_path) as agent, peer(agent) as client:
                await client.send("orders")
                version = agent.topics.data_version
            async with broker(server.address, store=tmp_path) as agent:
                assert agent.topics.data_version == version
                assert server.queues("orders") == (4, 4, 6)

    run(work())


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_restart_from_the_backup(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with namesrv() as server:
            async with broker(server.address, store=tmp_path) as agent, peer(agent) as client:
                await client.send("orders")
                await client.send("payments")
                file = agent.config.topics_file
            if damage == "truncated":
                file.write_bytes(file.read_bytes()[:-30])
            else:
                file.unlink()
            async with broker(server.address, store=tmp_path) as agent:
                assert server.queues("orders") == (4, 4, 6)
                assert server.queues("payments") is None  # that change was the last one
                assert decode_topic_table(file.read_bytes()) == agent.topics.snapshot()

    run(work())
    assert capsys.readouterr().out.count("Started from topics.json.bak: the last change may be lost.") == 1


def test_what_keeps_it_from_starting(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "topics.json").write_text("{")
        with pytest.raises(SetupError, match="there is no backup"):
            async with broker(store=tmp_path):
                pass
        async with broker() as running:
            taken = running.config.listen_port
            with pytest.raises(
                SetupError, match=f"127.0.0.1:{taken}: another process listens there.*--listen HOST:PORT"
            ):
                async with broker(listen_port=taken):
                    pass

    run(work())
    for settings, message in (
        ({"broker_ip1": "0.0.0.0"}, "brokerIP1 '0.0.0.0'"),
        ({"broker_id": -1}, "brokerId -1"),
        ({"broker_name": ""}, "must not be empty"),
        ({"broker_permission": 8}, "brokerPermission 8"),
        ({"default_topic_queue_nums": 0}, "must be at least 1"),
        ({"split_registration_size": 0}, "must be at least 1"),
    ):
        with pytest.raises(SetupError, match=message):
            BrokerAgent(BrokerConfig(**settings), ["127.0.0.1:9876"])
    for address in ("", "a:b", "ftp://a:1", "http://", "http://a:99999", "http://a/path"):
        with pytest.raises(SetupError):
            BrokerAgent(BrokerConfig(), [address])


def test_a_file_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with namesrv() as server, broker(server.address, store=tmp_path) as agent, peer(agent) as client:
            config = agent.config.topics_file.parent
            for file in config.iterdir():
                file.unlink()
            config.rmdir()
            config.write_text("a file where the folder was")
            assert (await client.send("orders")).code == EXISTS_BUT_NO_MESSAGES
            assert server.queues("orders") == (4, 4, 6)

    run(work())
    assert "cannot write topics.json" in capsys.readouterr().out

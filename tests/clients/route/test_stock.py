# SPDX-License-Identifier: Apache-2.0
"""A stock broker at a stock NameServer and at routelake: the route client's answers and those of RocketMQ's own client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from clients.route.blocking import BlockingRouteClient
from clients.route.cache import RouteChange
from clients.route.errors import NoRouteError
from clients.route.queues import MessageQueue
from clients.route.rotation import BackOff
from clients.route.settings import RouteSettings
from dev.peers.java import wait_until
from dev.support.live import LiveRoutelake
from dev.support.rocketmq import StockBroker, StockNameServer
from tests.clients.route.judge import JavaClient

pytestmark = pytest.mark.jvm

_ADMIN_TIMEOUT_MS = 60_000
"""Not the default 5 s: how busy the machine is must not decide."""

QUICK = RouteSettings(back_off=BackOff(0.1, 0.5), poll_name_server_interval_s=0.2)


class World:
    """One broker that registers with both, RocketMQ's admin tool for each of them, and its producer and consumer."""

    def __init__(self, stock: StockNameServer, lake: LiveRoutelake, broker: StockBroker, java: JavaClient) -> None:
        self.stock, self.lake, self.broker, self.java = stock, lake, broker, java
        self._number = itertools.count()
        self.both = f"{stock.address};{lake.namesrv_addr}"
        self.admin = self._start(java.packages.tools.admin.DefaultMQAdminExt(_ADMIN_TIMEOUT_MS), self.both)

    def _start(self, client: Any, namesrv_addr: str) -> Any:
        client.setNamesrvAddr(namesrv_addr)
        client.setInstanceName(f"judge-{next(self._number)}")
        client.start()
        return client

    def producer(self, namesrv_addr: str) -> Any:
        return self._start(self.java.packages.client.producer.DefaultMQProducer("judges"), namesrv_addr)

    def consumer(self, namesrv_addr: str) -> Any:
        return self._start(self.java.packages.client.consumer.DefaultMQPullConsumer("judges"), namesrv_addr)

    def create_topic(self, topic: str, *, read: int, write: int, perm: int = 6) -> None:
        config = self.java.packages.common.TopicConfig(topic, read, write, perm)
        self.admin.createAndUpdateTopicConfig(self.broker.address, config)
        for address in self.addresses:
            with BlockingRouteClient(address, QUICK) as client:
                wait_until(lambda: self.shows(client, topic, write), 60, f"{topic} at {address}")

    @staticmethod
    def shows(client: BlockingRouteClient, topic: str, write: int) -> bool:
        try:
            client.update(topic)
            return [row.write_queue_nums for row in client.route(topic).queue_datas] == [write]
        except NoRouteError:
            return False

    @property
    def addresses(self) -> list[str]:
        return [self.stock.address, self.lake.namesrv_addr, self.lake.http_url]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    lake = LiveRoutelake(tmp_path_factory.mktemp("lake"), order_message_enable=True)
    java = JavaClient(tmp_path_factory.mktemp("java"))
    try:
        with (
            StockNameServer({"orderMessageEnable": "true"}) as stock,
            StockBroker(f"{stock.address};{lake.namesrv_addr}") as broker,
        ):
            yield World(stock, lake, broker, java)
            java.close()  # with its clients, before it tries for seconds to reach those who have gone
    finally:
        java.close()
        lake.close()


def queues(found: Any) -> list[MessageQueue]:
    return [MessageQueue(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()) for queue in found]


def order_conf(client: BlockingRouteClient, topic: str) -> str | None:
    client.update(topic)
    return client.route(topic).order_topic_conf


def test_the_answers_are_the_same_objects(world: World) -> None:
    world.create_topic("same", read=5, write=3)
    clients = [BlockingRouteClient(address, QUICK) for address in world.addresses]
    routes = [client.route("same") for client in clients]
    assert routes[0].broker_datas[0].broker_addrs == {0: world.broker.address}
    assert routes[0] == routes[1] == routes[2]
    expected = queues(world.producer(world.stock.address).fetchPublishMessageQueues("same"))
    readable = set(queues(world.consumer(world.stock.address).fetchSubscribeMessageQueues("same")))
    assert len(expected) == 3 and len(readable) == 5
    for client in clients:
        assert client.publish_queues("same") == expected
        assert client.subscribe_queues("same") == readable
        assert client.publish_address(expected[0]) == world.broker.address
        assert client.try_to_find_topic_publish_info("TBW102").ok
        client.close()


def test_permissions_and_order_configurations(world: World) -> None:
    world.create_topic("ordered", read=4, write=4)
    world.admin.createOrUpdateOrderConf("ordered", "broker-a:2", True)
    for address in world.addresses:
        with BlockingRouteClient(address, QUICK) as client:
            wait_until(lambda: order_conf(client, "ordered") == "broker-a:2", 60, "the order configuration")
            info = client.try_to_find_topic_publish_info("ordered")
            assert info.order_topic
            theirs = (
                queues(world.producer(address).fetchPublishMessageQueues("ordered")) if "//" not in address else None
            )
            assert theirs in (None, list(info.message_queue_list))
            assert len(info.message_queue_list) == 2
    world.create_topic("closed", read=4, write=4, perm=4)
    for address in world.addresses:
        with BlockingRouteClient(address, QUICK) as client:
            with pytest.raises(NoRouteError):
                client.publish_queues("closed")
            assert len(client.subscribe_queues("closed")) == 4


def test_a_new_topic_goes_where_the_default_topic_is_and_is_there_after_the_first_send(world: World) -> None:
    clients = {address: BlockingRouteClient(address, QUICK) for address in world.addresses}
    news: dict[str, list[RouteChange]] = {address: [] for address in clients}
    for address, client in clients.items():
        client.listen(news[address].append, "fresh")
        assert [queue.queue_id for queue in client.publish_queues("fresh")] == [0, 1, 2, 3]
        wait_until(lambda: len(news[address]) == 1, 60, "the default topic's route")  # noqa: B023
    producer = world.producer(world.both)
    message = world.java.packages.common.message.Message("fresh", b"hello")
    sent = queues([producer.send(message, 60_000).getMessageQueue()])[0]
    for address, client in clients.items():
        assert sent in client.publish_queues("fresh")
        # The same queues as before, but now they are the topic's own: that is news.
        wait_until(lambda: len(news[address]) == 2, 60, f"the topic's own route at {address}")  # noqa: B023
        assert client.route("fresh").queue_datas[0].write_queue_nums == 4
        client.close()


def test_from_a_killed_name_server_to_routelake(world: World) -> None:
    world.create_topic("outlives", read=4, write=4)
    with BlockingRouteClient(world.stock.address, QUICK) as client:
        before = client.route("outlives")
        client.update_name_servers([world.stock.address, world.lake.http_url])
        world.stock.process.sigkill()
        client.update("outlives")
        assert client.name_server == world.lake.http_url
        assert client.route("outlives") == before

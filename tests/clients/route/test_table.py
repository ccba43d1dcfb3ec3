# SPDX-License-Identifier: Apache-2.0
"""What follows from routes: publish and subscribe info, brokers, changes. The branches of the flow charts."""

from __future__ import annotations

import random

import msgspec
import pytest

from clients.route.brokers import (
    broker_vip_channel,
    find_broker_address_in_admin,
    find_broker_address_in_publish,
    find_broker_address_in_subscribe,
    select_broker_addr,
)
from clients.route.cache import RouteCache, RouteChange
from clients.route.errors import BadRouteError, OrderConfError
from clients.route.queues import MessageQueue, clamped, topic_publish_info, topic_subscribe_info
from clients.route.transport import RouteAnswer, decode_route
from dev.support.routes import group, route, row
from schemas.broker import TopicQueueMappingInfo
from schemas.errors import SetupError
from schemas.rocketmq_json import encode_topic_route
from schemas.route import TopicRouteData

T = "orders"


def published(data: TopicRouteData) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in topic_publish_info(T, data).message_queue_list]


def test_rows_are_published_in_the_order_of_their_names() -> None:
    assert published(route([row("b", write=1), row("a", write=2)])) == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("perm", "writes", "reads"), [(6, 1, 1), (4, 0, 1), (2, 1, 0), (0, 0, 0), (7, 1, 1), (3, 1, 0)]
)
def test_permission(perm: int, writes: int, reads: int) -> None:
    data = route([row(perm=perm, write=1, read=1)])
    assert len(published(data)) == writes
    assert len(topic_subscribe_info(T, data)) == reads


def test_write_and_read_numbers_are_separate() -> None:
    data = route([row(read=3, write=1)])
    assert len(published(data)) == 1
    assert len(topic_subscribe_info(T, data)) == 3


def test_without_a_broker_of_that_name_nothing_is_published() -> None:
    data = route([row("a")], [group("b")])
    assert published(data) == []
    assert len(topic_subscribe_info(T, data)) == 4


def test_without_a_master_nothing_is_published_but_all_can_be_read() -> None:
    data = route(groups=[group(addrs={1: "h:2"})])
    assert published(data) == []
    assert len(topic_subscribe_info(T, data)) == 4


def test_an_acting_master_can_be_read_and_not_written() -> None:
    # What a NameServer answers with supportActingMaster: the slave under id 0, and the write permission taken away.
    data = route([row(perm=4)], [group(addrs={0: "h:2"}, enable_acting_master=True)])
    assert published(data) == []
    assert find_broker_address_in_subscribe({"broker-a": {0: "h:2"}}, "broker-a", 0, only_this_broker=False)


def test_an_order_configuration_replaces_everything() -> None:
    data = route([row("a", perm=0)], [], order="b:2;a:1")
    info = topic_publish_info(T, data)
    assert published(data) == [("b", 0), ("b", 1), ("a", 0)]
    assert info.order_topic
    assert topic_subscribe_info(T, data) == frozenset()
    assert published(route(order="")) == [("broker-a", number) for number in range(4)]


def test_a_static_topic_has_logical_queues() -> None:
    mapping = TopicQueueMappingInfo(
        topic=T, scope="__global__", total_queues=2, bname="broker-a", epoch=1, curr_id_map={0: 7}
    )
    data = route(mappings={"broker-a": mapping})
    assert published(data) == [("__syslo__global__", 0), ("__syslo__global__", 1)]
    assert len(topic_subscribe_info(T, data)) == 2
    table = RouteCache(4)
    table.take(T, RouteAnswer(data))
    assert table.broker_name(MessageQueue(T, "__syslo__global__", 0)) == "broker-a"
    assert table.broker_name(MessageQueue(T, "__syslo__global__", 1)) == "__syslo__none__"
    assert table.broker_name(MessageQueue(T, "__syslo__global__", 9)) is None
    assert table.broker_name(MessageQueue("another", "broker-b", 0)) == "broker-b"
    # An order configuration that is there but empty makes it an ordinary topic for producers.
    assert published(msgspec.structs.replace(data, order_topic_conf=""))[0] == ("broker-a", 0)


def test_write_queue_nums() -> None:
    info = topic_publish_info(T, route([row(write=3)]))
    assert info.write_queue_nums("broker-a") == 3
    assert info.write_queue_nums("broker-b") == -1


@pytest.mark.parametrize(("read", "write", "expected"), [(8, 8, 4), (2, 8, 2), (8, 0, 4), (0, 8, 0)])
def test_the_default_topic_is_clamped_by_its_read_queues(read: int, write: int, expected: int) -> None:
    data = clamped(route([row(read=read, write=write, perm=7)]), 4)
    assert (data.queue_datas[0].read_queue_nums, data.queue_datas[0].write_queue_nums) == (expected, expected)


# --- brokers ---

TABLE = {"a": {0: "m:1", 1: "s:1", 3: "s:3"}, "slaves": {2: "s:2"}, "empty": {}}


@pytest.mark.parametrize(
    ("name", "broker_id", "only", "expected"),
    [
        ("a", 0, True, ("m:1", False)),
        ("a", 1, True, ("s:1", True)),
        ("a", 2, True, ("s:3", True)),
        ("a", 4, True, None),
        ("a", 4, False, ("m:1", False)),
        ("slaves", 0, True, None),
        ("slaves", 0, False, ("s:2", True)),
        ("slaves", 1, True, ("s:2", True)),
        ("empty", 0, False, None),
        ("nobody", 0, False, None),
    ],
)
def test_where_to_read(name: str, broker_id: int, only: bool, expected: tuple[str, bool] | None) -> None:
    assert find_broker_address_in_subscribe(TABLE, name, broker_id, only_this_broker=only) == expected


def test_where_to_write_and_administer() -> None:
    assert find_broker_address_in_publish(TABLE, "a") == "m:1"
    assert find_broker_address_in_publish(TABLE, "slaves") is None
    assert find_broker_address_in_publish(TABLE, "nobody") is None
    assert find_broker_address_in_admin(TABLE, "slaves") == ("s:2", True)
    assert find_broker_address_in_admin(TABLE, "empty") is None


def test_any_address_of_a_group() -> None:
    choice = random.Random(1)
    assert select_broker_addr(group(addrs={0: "m", 1: "s"}), choice) == "m"
    assert {select_broker_addr(group(addrs={1: "s", 2: "u"}), choice) for _ in range(30)} == {"s", "u"}
    assert select_broker_addr(group(addrs={}), choice) is None


@pytest.mark.parametrize("address", ["", "a", ":3", "a:2", "a:x", "a:٣"])
def test_no_vip_channel(address: str) -> None:
    with pytest.raises(SetupError, match="VIP"):
        broker_vip_channel(address)


# --- the cache ---


class Heard:
    """A cache, and the notifications of its listeners."""

    def __init__(self) -> None:
        self.cache = RouteCache(4)
        self.changes: list[RouteChange] = []
        self.cache.listen(self.changes.append, None)

    def news(self) -> list[RouteChange]:
        changes, self.changes[:] = list(self.changes), []
        return changes


def test_the_first_route_is_news_and_the_same_one_is_not() -> None:
    heard, data = Heard(), route()
    assert heard.cache.take(T, RouteAnswer(data, '"1-x"')).changed
    assert heard.news() == [RouteChange(T, None, data)]
    same = route(groups=[group(cluster="elsewhere", enable_acting_master=True)])
    assert not heard.cache.take(T, RouteAnswer(same, '"2-y"')).changed
    assert heard.news() == []
    assert heard.cache.tag(T) == '"2-y"'
    other = route([row(write=8)])
    assert heard.cache.take(T, RouteAnswer(other)).changed
    assert heard.news() == [RouteChange(T, data, other)]
    assert heard.cache.tag(T) is None


def test_an_equal_route_is_announced_to_a_reader_without_derived_queues() -> None:
    heard, bare = Heard(), route(groups=[])
    heard.cache.publish_info(T)
    heard.cache.take(T, RouteAnswer(bare, '"1-x"'))
    heard.news()
    assert heard.cache.take(T, None).changed  # there is a route and still no queue
    assert heard.cache.take(T, RouteAnswer(bare, '"1-x"')).changed
    assert heard.news() == []
    heard.cache.take(T, RouteAnswer(route(), '"2-x"'))
    assert not heard.cache.take(T, None).changed
    heard.cache.take(T, RouteAnswer(None, '"3-none"'))
    assert heard.cache.subscribe_info(T) is None
    heard.news()
    assert heard.cache.take(T, RouteAnswer(route(), '"4-x"')).changed
    assert [change.new for change in heard.news()] == [route()]
    info, queues = heard.cache.publish_info(T), heard.cache.subscribe_info(T)
    assert info is not None and info.ok
    assert queues is not None and len(queues) == 4


def test_what_follows_from_a_known_route_is_there_at_once() -> None:
    heard = Heard()
    heard.cache.take(T, RouteAnswer(route()))
    info, queues = heard.cache.publish_info(T), heard.cache.subscribe_info(T)
    assert info is not None and info.ok and info.have_topic_router_info
    assert queues is not None and len(queues) == 4
    assert not heard.cache.needs_update(T)


def test_a_topic_that_is_gone_keeps_its_route_and_is_news_once() -> None:
    heard, data = Heard(), route()
    assert heard.cache.take(T, RouteAnswer(None, '"1-none"')) == (False, None)
    heard.cache.take(T, RouteAnswer(data))
    heard.news()
    for _ in range(2):
        assert not heard.cache.take(T, RouteAnswer(None, '"2-none"')).changed
    assert heard.news() == [RouteChange(T, data, None)]
    assert heard.cache.routes[T] == data
    assert heard.cache.take(T, None) == (False, None)  # still gone
    assert not heard.cache.take(T, RouteAnswer(data)).changed
    assert heard.news() == [RouteChange(T, data, data)]
    assert heard.cache.missing == set()


def test_the_default_topics_route_serves_until_the_topic_is_there() -> None:
    heard = Heard()
    heard.cache.publish_info(T)
    heard.cache.take(T, RouteAnswer(None, '"1-none"'))
    assert not heard.cache.take_default(T, RouteAnswer(None)).changed
    assert not heard.cache.take_default(T, None).changed
    assert heard.cache.take_default(T, RouteAnswer(route([row("a", read=8), row("b", read=2)]), '"1-tbw"')).changed
    info = heard.cache.publish_info(T)
    assert info is not None and len(info.message_queue_list) == 6
    assert heard.cache.tag(T) == '"1-none"'
    assert len(heard.news()) == 1
    assert not heard.cache.take(T, RouteAnswer(None, '"2-none"')).changed
    assert heard.news() == []  # it was never there
    created = route([row("a", read=4)])
    assert heard.cache.take(T, RouteAnswer(created)).changed
    assert [change.new for change in heard.news()] == [created]
    info = heard.cache.publish_info(T)
    assert info is not None and len(info.message_queue_list) == 4


def test_a_broken_order_configuration_changes_nothing_for_producers_and_is_no_matter_to_others() -> None:
    heard, data = Heard(), route()
    heard.cache.publish_info(T)
    heard.cache.take(T, RouteAnswer(data, '"1-x"'))
    with pytest.raises(OrderConfError):
        heard.cache.take(T, RouteAnswer(route(order="x"), '"2-y"'))
    assert heard.cache.routes[T] == data
    assert heard.cache.tag(T) == '"1-x"'
    heard.cache.take("another", RouteAnswer(route(order="x")))
    assert "another" in heard.cache.routes


def test_addresses_that_no_route_names_go() -> None:
    cache = RouteCache(4)
    cache.take("t1", RouteAnswer(route([row("a")], [group("a", {0: "m:1", 1: "s:1"}), group("b", {0: "m:2"})])))
    cache.take("t1", RouteAnswer(route([row("a")], [group("a", {0: "m:9"})])))
    assert cache.brokers == {"a": {0: "m:9"}, "b": {0: "m:2"}}
    cache.clean_offline_brokers()
    assert cache.brokers == {"a": {0: "m:9"}}
    cache.forget("t1")
    cache.clean_offline_brokers()
    assert cache.brokers == {}


def test_a_listener_that_fails_disturbs_nobody_and_one_can_leave() -> None:
    heard = Heard()

    def fail(change: RouteChange) -> None:
        raise ValueError("boom")

    end = heard.cache.listen(fail, T)
    told: list[RouteChange] = []
    heard.cache.listen(told.append, "another")
    heard.cache.take(T, RouteAnswer(route()))
    end()
    end()
    heard.cache.take(T, RouteAnswer(route([row(write=1)])))
    assert len(heard.news()) == 2
    assert told == []


# --- answers of other releases ---


@pytest.mark.parametrize("numeric_keys", [True, False])
def test_both_dialects(numeric_keys: bool) -> None:
    data = route(groups=[group(zone_name="z")], order="a:1", filters={"h:1": ["f"]})
    assert decode_route("ns", encode_topic_route(data, numeric_keys=numeric_keys)) == data


def test_an_answer_of_4x() -> None:
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSynFlag":0,"writeQueueNums":4}]}'
    )
    assert decode_route("ns", text) == route([row("a")], [group("a", {0: "h:1"}, cluster="c")])


@pytest.mark.parametrize("body", [b"", b"[]", b'{"brokerDatas":1}', b'{"queueDatas":[{}]}', b"\xff", b"[" * 100_000])
def test_answers_that_are_no_route(body: bytes) -> None:
    with pytest.raises(BadRouteError, match="ns:9876"):
        decode_route("ns:9876", body)

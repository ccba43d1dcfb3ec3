# SPDX-License-Identifier: Apache-2.0
"""RouteClient against NameServers that speak remoting: the client halves of the flow charts, fail-over, refresh."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from clients.route.cache import RouteChange
from clients.route.client import RouteClient
from clients.route.errors import BadRouteError, NoRouteError, OrderConfError
from clients.route.queues import MessageQueue
from clients.route.rotation import BackOff
from clients.route.settings import RouteSettings
from dev.support.live import ToldNameServer, run
from dev.support.loops import eventually
from dev.support.routes import group, route, row
from remoting.errors import AnswerError, AnswerTimeoutError, ClientError, ConnectError
from schemas.codes import ResponseCode
from schemas.errors import SetupError, UnavailableError

TBW102 = route([row("a", read=8, write=8, perm=7), row("b", read=2, write=8, perm=7)])

NO_ANSWER_S = 30.0
"""Only the test of a timeout waits for it. Servers of the other tests answer before."""

Work = Callable[[RouteClient, list[ToldNameServer]], Awaitable[None]]


def with_servers(work: Work, count: int = 1, **settings: Any) -> None:
    """Run a test with so many NameServers; the client asks them in their order."""

    async def body() -> None:
        async with AsyncExitStack() as stack:
            servers = []
            for _ in range(count):
                servers.append(await ToldNameServer().start())
                stack.push_async_callback(servers[-1].stop)
            settings.setdefault("mq_client_api_timeout_s", NO_ANSWER_S)
            settings.setdefault("poll_name_server_interval_s", 3600.0)  # nothing comes by asking again now and then
            settings.setdefault("back_off", BackOff(0.1, 0.4))
            choice = random.Random(1)
            choice.shuffle = lambda items: None  # type: ignore[method-assign, assignment]
            client = RouteClient([server.address for server in servers], RouteSettings(**settings), choice=choice)
            async with client:
                await work(client, servers)

    run(body())


# --- tryToFindTopicPublishInfo ---


def test_a_topic_that_exists() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = route([row("a", write=2)])
        info = await client.try_to_find_topic_publish_info("orders")
        assert info.message_queue_list == (MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1))
        assert info.have_topic_router_info
        assert await client.try_to_find_topic_publish_info("orders") is info
        assert server.asked == ["orders"]  # the second time it was known

    with_servers(work)


def test_a_topic_that_does_not_exist_takes_the_default_topics_queues() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["TBW102"] = TBW102
        queues = await client.publish_queues("fresh")
        assert [(q.broker_name, q.queue_id) for q in queues] == [
            ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1),
        ]  # fmt: skip
        assert {queue.topic for queue in queues} == {"fresh"}
        assert server.asked == ["fresh", "TBW102"]
        # A broker has created it on the first send; the next refresh narrows the route to that broker.
        server.routes["fresh"] = route([row("a", read=4, write=4)])
        assert await client.update("fresh")
        assert len(await client.publish_queues("fresh")) == 4

    with_servers(work)


def test_neither_the_topic_nor_the_default_topic() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        info = await client.try_to_find_topic_publish_info("fresh")
        assert not info.ok and not info.have_topic_router_info
        with pytest.raises(NoRouteError) as error:
            await client.publish_queues("fresh")
        assert error.value.code == 10005
        with pytest.raises(NoRouteError):
            await client.route("fresh")
        with pytest.raises(NoRouteError):
            await client.subscribe_queues("fresh")
        with pytest.raises(NoRouteError):
            await client.caller().select("fresh")

    with_servers(work)


def test_a_route_without_a_usable_queue_does_not_lead_to_the_default_topic() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes = {"TBW102": TBW102, "orders": route(groups=[group(addrs={1: "slave:1"})])}
        info = await client.try_to_find_topic_publish_info("orders")
        assert info.have_topic_router_info and not info.ok
        with pytest.raises(NoRouteError):
            await client.publish_queues("orders")
        assert "TBW102" not in server.asked
        # It is asked for again each time, so the master is seen as soon as it is back.
        server.routes["orders"] = route()
        assert len(await client.publish_queues("orders")) == 4

    with_servers(work)


def test_a_known_topic_outlives_its_route() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = data = route()
        changes: list[RouteChange] = []
        client.listen(changes.append)
        await client.publish_queues("orders")
        server.routes.clear()
        assert not await client.update("orders")
        assert len(await client.publish_queues("orders")) == 4
        assert await client.route("orders") == data
        assert [change.new for change in changes] == [data, None]

    with_servers(work)


def test_an_error_on_the_topic_still_leads_to_the_default_topic_and_is_told_in_the_end() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.code = ResponseCode.SYSTEM_ERROR
        with pytest.raises(AnswerError, match="as told"):
            await client.publish_queues("orders")
        assert server.asked == ["orders", "TBW102"]
        with pytest.raises(AnswerError, match="as told"):
            await client.route("orders")
        assert client.name_server == server.address  # it answered: it stays chosen

    with_servers(work)


def test_a_broken_order_configuration_is_an_error_for_producers() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["orders"] = route(order="broker-a")
        with pytest.raises(OrderConfError, match="brokerName:queues"):
            await client.publish_queues("orders")

    with_servers(work)


# --- addresses ---


def test_where_to_send_and_read() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["orders"] = route([row("a")], [group("a", {0: "m:10911", 1: "s:10911"})])
        queue = (await client.publish_queues("orders"))[0]
        assert await client.publish_address(queue) == "m:10909"
        assert await client.subscribe_address(queue) == ("m:10911", False)
        assert await client.subscribe_address(queue, 1) == ("s:10911", True)
        with pytest.raises(NoRouteError, match="no address to read from"):
            await client.subscribe_address(queue, 7, only_this_broker=True)
        with pytest.raises(NoRouteError, match="no master"):
            await client.publish_address(MessageQueue("orders", "nobody", 0))
        # Unknown so far: found by asking.
        client.forget("orders")
        client._cache.clean_offline_brokers()
        assert client.broker_table == {}
        assert await client.publish_address(queue) == "m:10909"

    with_servers(work, vip_channel_enabled=True)


def test_namespaces_are_put_on_and_taken_off() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["N1%orders"] = route()
        queues = await client.publish_queues("orders")
        assert {queue.topic for queue in queues} == {"orders"}
        assert {queue.topic for queue in await client.subscribe_queues("N1%orders")} == {"orders"}
        assert set(servers[0].asked) == {"N1%orders"}
        assert (await client.caller().select("orders")).topic == "N1%orders"
        assert await client.publish_address(queues[0]) == "broker-a:10911"

    with_servers(work, namespace="N1")


def test_the_namespace_of_an_instance_address() -> None:
    assert RouteClient("MQ_INST_1_abc.mq.example:9876").namespace == "MQ_INST_1_abc"
    assert RouteClient("mq.example:9876").namespace == ""
    assert RouteClient("MQ_INST_1_abc.mq:9876", RouteSettings(namespace="")).namespace == ""


@pytest.mark.parametrize(
    "wrong",
    [{"jitter": 1.0}, {"jitter": -0.1}, {"poll_name_server_interval_s": 0}, {"long_poll_s": -1.0}],
)
def test_settings_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=next(iter(wrong))):
        RouteSettings(**wrong)


# --- choosing queues ---


def test_each_caller_has_its_own_turn_and_a_failing_broker_is_avoided() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["orders"] = route([row("a", write=2), row("b", write=2)])
        mine, yours = client.caller(), client.caller()
        first = [await mine.select("orders") for _ in range(4)]
        await yours.select("orders")
        assert [await mine.select("orders") for _ in range(4)] == first
        assert len(set(first)) == 4
        on_a = next(queue for queue in first if queue.broker_name == "a")
        assert {(await mine.select("orders", last_broker_name="a")).broker_name for _ in range(8)} == {"b"}
        mine._which["orders"]._index = 100
        await mine.select("orders", last_broker_name="a")
        assert mine._which["orders"]._index not in (101, 102, 103, 104)  # a further attempt goes on at a random place
        mine.sent(on_a, 20)
        assert {(await yours.select("orders")).broker_name for _ in range(8)} == {"a", "b"}
        mine.sent(on_a, 3_000, isolation=True)
        assert {(await yours.select("orders")).broker_name for _ in range(8)} == {"b"}

    with_servers(work, send_latency_enable=True)


def test_without_the_setting_sends_leave_no_trace() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["orders"] = route([row("a"), row("b")])
        caller = client.caller()
        caller.sent(await caller.select("orders"), 60_000, isolation=True, reachable=False)
        assert client.faults.item("a") is None and client.faults.item("b") is None

    with_servers(work)


def test_the_detector_finds_a_broker_again_and_forgets_one_without_address() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        name_server, broker = servers
        broker.code = ResponseCode.SYSTEM_ERROR
        name_server.routes["orders"] = route([row("a")], [group("a", {0: broker.address})])
        caller = client.caller()
        queue = await caller.select("orders")
        caller.sent(queue, 10, isolation=True, reachable=False)
        caller.sent(MessageQueue("orders", "nobody", 0), 10, reachable=False)
        await eventually(lambda: broker.asked or client.faults.item("nobody") is None)
        assert not client.faults.is_reachable("a")
        broker.code, broker.garbage = 0, b"{}"
        await eventually(lambda: client.faults.is_reachable("a"))

    with_servers(work, 2, send_latency_enable=True, start_detector_enable=True, detect_interval_s=0.05)


# --- fail-over ---


def test_a_dead_server_is_passed_over_and_left_alone() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        dead, alive = servers
        await dead.stop()
        alive.routes["orders"] = route()
        begin = time.monotonic()
        assert await client.route("orders") is not None
        assert time.monotonic() - begin < NO_ANSWER_S / 2
        assert client.name_server == alive.address
        await dead.start()
        await client.update("orders")
        assert dead.asked == []  # the one that answers stays chosen

    with_servers(work, 2)


def test_a_hanging_server_costs_one_timeout_and_then_nothing() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        hanging, alive = servers
        hanging.hangs = True
        alive.routes["orders"] = route()
        begin = time.monotonic()
        assert await client.route("orders") is not None
        assert time.monotonic() - begin >= 2.5
        assert (hanging.asked, alive.asked) == (["orders"], ["orders"])
        await client.update("orders")
        assert (hanging.asked, alive.asked) == (["orders"], ["orders"] * 2)

    with_servers(work, 2, mq_client_api_timeout_s=2.5, back_off=BackOff(600.0, 600.0))


@pytest.mark.parametrize("code", [ResponseCode.GO_AWAY, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR])
def test_a_server_that_refuses_is_passed_over(code: ResponseCode) -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].code = code
        servers[1].routes["orders"] = route()
        assert await client.route("orders") is not None
        assert client.name_server == servers[1].address
        left_alone = servers[0].address not in client._fetcher._servers.candidates(client._now_s(), only_ready=True)
        assert left_alone == (code != ResponseCode.SYSTEM_ERROR)

    with_servers(work, 2, back_off=BackOff(600.0, 600.0))


def test_a_watch_avoids_a_failing_server() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = route()
        await client.route("orders")
        server.code = ResponseCode.GO_AWAY
        await eventually(lambda: len(server.asked) == 2)
        await asyncio.sleep(0.2)
        assert len(server.asked) == 2
        with pytest.raises(AnswerError):
            await client.update("orders")  # who asks himself is heard all the same
        assert len(server.asked) == 3

    with_servers(work, poll_name_server_interval_s=0.01, back_off=BackOff(600.0, 600.0))


@pytest.mark.parametrize("garbage", [b"no route", b""])
def test_a_server_that_talks_nonsense_is_passed_over(garbage: bytes) -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].garbage = garbage
        servers[1].routes["orders"] = route()
        assert await client.route("orders") is not None
        servers[1].garbage = garbage
        with pytest.raises(BadRouteError):
            await client.update("orders")

    with_servers(work, 2)


def test_a_topic_that_the_chosen_server_does_not_know_is_not_sought_elsewhere() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[1].routes["orders"] = route()
        with pytest.raises(NoRouteError):
            await client.route("orders")
        assert servers[1].asked == []

    with_servers(work, 2)


def test_with_all_servers_down_the_error_has_its_name_and_the_route_comes_when_one_is_back() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = route()
        await server.stop()
        with pytest.raises(ConnectError):
            await client.route("orders")
        with pytest.raises(ClientError):
            await client.try_to_find_topic_publish_info("orders")
        changes: list[RouteChange] = []
        client.listen(changes.append, "orders")
        await server.start()
        await eventually(lambda: changes)  # by itself, long before the next refresh

    with_servers(work)


def test_what_is_known_needs_no_server() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].routes["orders"] = route()
        await client.route("orders")
        await servers[0].stop()
        assert len(await client.publish_queues("orders")) == 4
        assert len(await client.subscribe_queues("orders")) == 4
        assert await client.caller().select("orders") is not None

    with_servers(work)


def test_a_restarted_server_is_asked_again() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = route()
        await client.route("orders")
        await server.stop()
        with pytest.raises(ClientError):
            await client.update("orders")
        await server.start()
        server.routes["orders"] = route([row(write=1)])
        assert await client.update("orders")  # at once: who asks himself does not wait for the back-off

    with_servers(work)


def test_another_list_of_servers() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        first, second = servers
        first.routes["orders"] = second.routes["orders"] = route()
        await client.route("orders")
        assert client.name_server == first.address
        await client.update_name_servers(second.address)
        assert client.name_server is None
        await client.update("orders")
        assert client.name_server == second.address
        await eventually(lambda: not first.server.connections)
        with pytest.raises(SetupError):
            await client.update_name_servers("9876")

    with_servers(work, 2)


def test_a_timeout_has_its_name() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].hangs = True
        with pytest.raises(AnswerTimeoutError):
            await client.route("orders")
        await eventually(lambda: not servers[0].server.connections)  # a connection on which nothing comes is closed

    with_servers(work, mq_client_api_timeout_s=0.1)


def test_after_close_nobody_is_asked() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        servers[0].hangs = True
        waiting = asyncio.create_task(client.route("orders"))
        await eventually(lambda: servers[0].asked)
        await client.close()
        with pytest.raises(UnavailableError, match="closed"):
            await waiting
        with pytest.raises(UnavailableError, match="closed"):
            await client.route("orders")
        assert servers[1].asked == []

    with_servers(work, 2)


# --- refresh ---


def test_topics_are_refreshed_and_listeners_hear_of_changes() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = old = route()
        changes: list[RouteChange] = []
        client.listen(changes.append, "orders")
        await client.publish_queues("orders")
        server.routes["orders"] = new = route([row(write=1)])
        await eventually(lambda: len(changes) == 2)
        assert changes == [RouteChange("orders", None, old), RouteChange("orders", old, new)]
        assert len(await client.publish_queues("orders")) == 1
        client.forget("orders")
        await client.update("another")  # on the same connection: what was under way has come
        asked = server.asked.count("orders")
        await eventually(lambda: server.asked.count("another") >= 4)
        assert server.asked.count("orders") == asked

    with_servers(work, poll_name_server_interval_s=0.03)


def test_pauses_are_shortened_at_random() -> None:
    client = RouteClient("a:1", choice=random.Random(1))
    pauses = [client._followers._jittered(30.0) for _ in range(500)]
    assert 24.0 <= min(pauses) < 24.5
    assert 29.5 < max(pauses) <= 30.0


def test_addresses_that_went_are_swept() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.routes["orders"] = route([row("a")], [group("a"), group("b")])
        await client.route("orders")
        assert set(client.broker_table) == {"a", "b"}
        server.routes["orders"] = route([row("a")])
        await eventually(lambda: set(client.broker_table) == {"a"})

    with_servers(work, poll_name_server_interval_s=0.03)


def test_many_at_a_time_ask_once_and_a_stuck_one_holds_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        server.hangs = True
        monkeypatch.setattr("clients.route.client.LOCK_TIMEOUT_S", 0.05)
        stuck = asyncio.create_task(client.route("orders"))
        await eventually(lambda: server.asked)
        assert not await client.update("orders")
        stuck.cancel()
        server.hangs = False
        server.routes["orders"] = route()
        assert await client.route("orders") is not None

    with_servers(work)


def test_watch() -> None:
    async def work(client: RouteClient, servers: list[ToldNameServer]) -> None:
        (server,) = servers
        seen: list[RouteChange] = []

        async def look() -> None:
            async for change in client.watch("orders"):
                seen.append(change)

        watching = asyncio.create_task(look())
        await eventually(lambda: seen)
        assert seen == [RouteChange("orders", None, None)]
        server.routes["orders"] = route()
        await eventually(lambda: len(seen) == 2)
        del server.routes["orders"]
        await eventually(lambda: len(seen) == 3)
        assert [change.new for change in seen] == [None, route(), None]
        watching.cancel()
        async for change in client.watch("orders"):
            assert change.new is None  # what is known when one comes late
            break

    with_servers(work, poll_name_server_interval_s=0.03)

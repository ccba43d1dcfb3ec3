# SPDX-License-Identifier: Apache-2.0
"""Quotas at a gateway: over a quota nothing is written, the answer names the quota, and other clients do not notice."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.histories.steps import Send
from dev.model import codes
from dev.model.client import ConnectionClosed, RemotingClient
from dev.model.wire import Request, Response
from dev.support.accounts import accounts_file, policy, sign
from dev.support.http_api import HttpApi, broker, problem
from dev.support.local import LocalGateway, LocalLake
from dev.support.loops import until
from schemas.events import ChannelClosed, Clock, RegisterBroker, Resume, decode
from security.quotas import Quotas, Rate
from tests.examples.parts import (
    ADDR1,
    ADDR2,
    ADDR3,
    T1,
    T2,
    A,
    B,
    config,
    mapping,
    put,
    register,
    register_topic,
    route,
    row,
    version,
)
from tests.examples.parts import who as broker_of

SYSTEM_BUSY = 2
NEVER = 1e-9
"""Of a rate: what flows in during a test is nothing."""


class Lake:
    """A gateway with quotas, and its log."""

    def __init__(self, lake: LocalLake, gateway: LocalGateway, client: RemotingClient) -> None:
        self.lake, self.gateway, self.client = lake, gateway, client

    def call(self, send: Send | Request) -> Response:
        return self.client.call(send.request() if isinstance(send, Send) else send)

    def ok(self, *sends: Send | Request) -> None:
        for send in sends:
            answer = self.call(send)
            assert answer.code == codes.SUCCESS, answer

    def refused(self, send: Send | Request, quota: str) -> None:
        """It is refused, and nothing is written."""
        before, counted = self.written(), self.metric(quota)
        answer = self.call(send)
        assert answer.code == SYSTEM_BUSY, answer
        assert f"--quota {quota}=" in (answer.remark or ""), answer.remark
        assert self.written() == before
        assert self.metric(quota) == counted + 1

    def written(self) -> list[Any]:
        """Every event but the gateway's own."""
        events = (decode(record.payload) for record in self.lake.log.read(0, max_records=10_000))
        return [event for event in events if not isinstance(event, Clock | Resume)]

    def metric(self, quota: str) -> float:
        found = self.gateway.parts.metrics.registry.get_sample_value("routelake_quota_refused_total", {"quota": quota})
        assert found is not None
        return found


@contextmanager
def limited(folder: Path, limits: Quotas, **more: Any) -> Iterator[Lake]:
    with (
        LocalLake(folder, folds=False) as lake,
        lake.gateway(quotas=limits, clock_interval_s=3600.0, **more) as gateway,
        gateway.connect() as client,
    ):
        yield Lake(lake, gateway, client)


def heartbeat(name: str = A, addr: str = ADDR1) -> Send:
    return Send(codes.BROKER_HEARTBEAT, broker_of(name, addr))


def test_a_storm_of_one_kind_of_request_leaves_the_others_alone(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(admin_requests_per_s=Rate(NEVER, 2), reads_per_s=Rate(NEVER, 1))) as lake:
        lake.ok(put("n", "a", "1"), put("n", "b", "1"))
        lake.refused(put("n", "c", "1"), "admin-requests-per-s")
        lake.ok(register(A, ADDR1), heartbeat())
        lake.ok(Request(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        lake.refused(Request(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "reads-per-s")
        for _ in range(20):
            lake.ok(route(T1).step)  # from memory: never counted
        lake.refused(Request(codes.GET_NAMESRV_CONFIG), "admin-requests-per-s")


def test_what_is_refused_one_way_is_dropped_and_counted(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(admin_requests_per_s=Rate(NEVER, 1))) as lake:
        lake.ok(put("n", "a", "1"))
        before = lake.written()
        asked = put("n", "b", "1").request()
        lake.client.send(Request(asked.code, asked.ext, asked.body, oneway=True))
        lake.ok(register(A, ADDR1))  # with the answer in the next frame
        assert lake.metric("admin-requests-per-s") == 1
        assert [type(event) for event in lake.written()[len(before) :]] == [RegisterBroker]


def test_users_have_quotas_of_their_own_wherever_they_come_from(tmp_path: Path) -> None:
    limits = Quotas(broker_requests_per_s=Rate(NEVER, 2))
    with limited(tmp_path, limits, policy=policy(), accounts=accounts_file(tmp_path)) as lake:
        one, other = (sign(register(A, ADDR1).request(), user) for user in ("broker", "bound"))
        lake.ok(one, one)
        answer = lake.call(one)
        assert answer.code == SYSTEM_BUSY
        assert "for user broker" in (answer.remark or "")
        lake.ok(other, other)


def test_brokers_of_one_peer(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(brokers=2)) as lake:
        lake.ok(register(A, ADDR1), register(A, ADDR1, at=version(counter=2), topics=[config(T1)]))
        lake.ok(register(A, ADDR2, 1))  # a slave
        lake.refused(register(B, ADDR2), "brokers")
        lake.refused(register(A, ADDR3, 2), "brokers")
        lake.ok(register(A, ADDR1, at=version(counter=3)))
        with RemotingClient("127.0.0.1", lake.gateway.port, source="127.0.0.2") as stranger:
            assert stranger.call(register(B, ADDR2).request()).code == codes.SUCCESS


def test_topics_of_one_peer_and_what_left_is_counted_no_more(tmp_path: Path) -> None:
    topics = [config(f"topic-{number}") for number in range(4)]
    with limited(tmp_path, Quotas(topics=3)) as lake:
        lake.ok(register(A, ADDR1, topics=topics[:3]), register(A, ADDR1, topics=topics[:3]))
        lake.refused(register(A, ADDR1, topics=topics, at=version(counter=2)), "topics")
        lake.refused(register(B, ADDR2, topics=topics[:2]), "topics")
        lake.gateway.gateway.quotas._counted_s = float("-inf")
        lake.ok(Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": "topic-0"}))
        more = register(A, ADDR1, topics=topics[1:], at=version(counter=2))
        until(lambda: lake.call(more).code == codes.SUCCESS)  # the first one has it counted


def test_static_mappings_count_as_topics(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(topics=6)) as lake:
        mapped = [
            register(A, ADDR1, mappings=[mapping(name, A)], at=version(counter=number))
            for number, name in enumerate((T1, T2, "another"), 2)
        ]
        lake.ok(register(A, ADDR1), mapped[0], mapped[0], mapped[1])
        lake.refused(mapped[2], "topics")


@pytest.mark.parametrize("limits", [Quotas(all_brokers=1), Quotas(all_topics=2)], ids=["all-brokers", "all-topics"])
def test_what_there_is_in_all_may_change_and_not_grow(tmp_path: Path, limits: Quotas) -> None:
    quota = "all-brokers" if limits.all_brokers == 1 else "all-topics"
    with limited(tmp_path, limits) as lake:
        lake.ok(register(A, ADDR1))
        lake.refused(register(B, ADDR2, topics=[config("another")]), quota)
        lake.ok(register(A, ADDR1, at=version(counter=2), topics=[config(T1, perm=4), config(T2)]))


def test_new_names_whatever_they_name(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(new_names_per_min=Rate(NEVER, 5))) as lake:
        lake.ok(register(A, ADDR1), put("n", "k", "1"), put("n", "k", "2"), register_topic(T1, row(A, perm=2)))
        lake.ok(register_topic("t-new", row(A)))
        lake.refused(put("n", "another", "1"), "new-names-per-min")
        lake.refused(register_topic("t-newer", row(A)), "new-names-per-min")
        lake.refused(register(B, ADDR2), "new-names-per-min")
        lake.ok(register(A, ADDR1, at=version(counter=2)), put("n", "k", "3"), heartbeat())


def test_heartbeats_over_their_quota_are_answered_and_nobody_expires(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(heartbeat_mb_per_h=Rate(NEVER, 0.0006))) as lake:
        lake.ok(register(A, ADDR1))
        lake.ok(heartbeat(), heartbeat())
        before = lake.written()
        for _ in range(20):
            lake.ok(heartbeat(), register(A, ADDR1))
        assert len(lake.written()) <= len(before) + 1
        assert lake.gateway.gateway.quotas.unwritten >= 35
        lake.refused(heartbeat(B, ADDR2), "heartbeat-mb-per-h")  # it is unknown


def test_a_heartbeat_is_written_all_the_same_once_the_last_one_is_old(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(heartbeat_mb_per_h=Rate(NEVER, 0.0006))) as lake:
        lake.ok(register(A, ADDR1, heartbeatTimeoutMillis="4"))
        for _ in range(3):
            lake.call(heartbeat())
        lake.refused(heartbeat(), "heartbeat-mb-per-h")


def test_a_registration_that_the_view_shows_is_a_sign_of_life(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(broker_mb_per_h=Rate(NEVER, 0.05))) as lake:
        lake.ok(register(A, ADDR1))  # with the epoch that it makes
        lake.refused(register(B, ADDR2), "broker-mb-per-h")
        many = [config(f"topic-{number}") for number in range(400)]
        lake.refused(register(A, ADDR1, at=version(counter=2), topics=many), "broker-mb-per-h")
        # ... after which this broker has to register in full again, if there were room.
        lake.ok(register(A, ADDR1), register(A, ADDR1))


def test_a_connection_that_is_lost_is_written_whatever_it_costs(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(broker_mb_per_h=Rate(NEVER, 0.05))) as lake:
        with lake.gateway.connect() as client:
            assert client.call(register(A, ADDR1).request()).code == codes.SUCCESS
        # Until the head has it: before, the next one is written in short first, as of a broker that is there.
        until(lambda: not lake.gateway.gateway.live_view.view.live_rows(A))
        assert isinstance(lake.written()[-1], ChannelClosed)
        lake.refused(register(A, ADDR1), "broker-mb-per-h")


def test_what_changes_nothing_is_charged_the_log_alone(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas()) as lake:
        quotas = lake.gateway.gateway.quotas
        lake.ok(register(A, ADDR1))
        used = quotas.used()["broker-mb-per-h"]
        lake.ok(register(A, ADDR1, filters=None))
        assert quotas.used()["broker-mb-per-h"] - used < 1e-5


def test_connections_of_one_address(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(connections=2)) as lake:
        lake.ok(heartbeat())
        with lake.gateway.connect() as second:
            assert second.call(heartbeat().request()).code == codes.SUCCESS
            with pytest.raises((ConnectionClosed, OSError)), lake.gateway.connect() as third:
                third.call(heartbeat().request())
            with RemotingClient("127.0.0.1", lake.gateway.port, source="127.0.0.2") as stranger:
                assert stranger.call(heartbeat().request()).code == codes.SUCCESS
            lake.ok(heartbeat())
        refusals = lake.gateway.parts.server.refusals
        assert refusals.counts["quota-connections"] == 1
        text = lake.gateway.parts.metrics.text().decode()
        assert 'routelake_quota_refused_total{quota="connections"} 1.0' in text

        def again() -> bool:
            try:
                with lake.gateway.connect() as client:
                    return client.call(heartbeat().request()).code == codes.SUCCESS
            except (ConnectionClosed, OSError):
                return False

        until(again)  # once the gateway has seen the second one close


def test_whoever_said_nothing_gives_way_at_its_address(tmp_path: Path) -> None:
    with limited(tmp_path, Quotas(connections=2)) as lake:
        lake.ok(heartbeat())
        with socket.create_connection(("127.0.0.1", lake.gateway.port)):
            until(lambda: len(lake.gateway.parts.server.connections) == 2)

            def let_in() -> bool:  # once the silent one has been there for a tick
                try:
                    with lake.gateway.connect() as client:
                        return client.call(heartbeat().request()).code == codes.SUCCESS
                except (ConnectionClosed, OSError):
                    return False

            until(let_in)
        lake.ok(heartbeat())


# --- HTTP ---


@pytest.fixture
def api(tmp_path: Path) -> Iterator[HttpApi]:
    limits = Quotas(
        admin_requests_per_s=Rate(NEVER, 1),
        reads_per_s=Rate(NEVER, 2),
        brokers=1,
        heartbeat_mb_per_h=Rate(NEVER, 0.0005),
    )
    api = HttpApi(tmp_path, fold=False, clock_interval_s=3600.0, quotas=limits)
    yield api
    api.close()


def test_over_http_it_is_429_with_a_time(api: HttpApi) -> None:
    assert api.put("/v1/kv/n/k", {"value": "v"}).status_code == 200
    before = api.log.end()
    answer = api.put("/v1/kv/n/k", {"value": "w"})
    found = problem(answer, 429, "quota-exceeded")
    assert found["quota"] == "admin-requests-per-s"
    assert found["code"] == SYSTEM_BUSY
    assert int(answer.headers["retry-after"]) > 0
    assert not api.written_since(before)


def test_reads_over_http(api: HttpApi) -> None:
    assert [api.get("/v1/clusters").status_code for _ in range(3)] == [200, 200, 429]
    assert api.get("/v1/clusters", peer=("127.0.0.2", 5)).status_code == 200
    for path in ("/metrics", "/docs", "/openapi.json", "/console/", "/console/main.js", "/console/session", "/nothing"):
        assert api.get(path).status_code == 429, path
        assert api.get(path, peer=("127.0.0.3", 5)).status_code in (200, 404, 429)
    for path in ("/healthz", "/readyz", "/healthz/fold"):
        assert api.get(path).status_code in (200, 503)


def test_brokers_over_http(api: HttpApi) -> None:
    assert api.register(broker()).status_code == 200
    before = api.log.end()
    found = problem(api.register({**broker(), "brokerName": "another"}), 429, "quota-exceeded")
    assert found["quota"] == "brokers"
    assert not api.written_since(before)
    sign_of_life = {name: broker()[name] for name in ("clusterName", "brokerName", "brokerAddr")}
    answers = [api.post("/v1/brokers/heartbeat", sign_of_life) for _ in range(10)]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["outcome"] for answer in answers} == {"unchanged"}
    assert len(api.written_since(before)) < 4


def test_the_limits_can_be_scraped(api: HttpApi) -> None:
    text = api.get("/metrics").text
    assert 'routelake_quota_limit{quota="brokers"} 1.0' in text
    assert 'routelake_quota_refused_total{quota="connections"} 0.0' in text
    assert 'routelake_quota_used_ratio{quota="reads-per-s"} 0.0' not in text, "the scrape itself counts"
    assert 'routelake_quota_used_ratio{quota="refused-proofs-per-min"} 0.0' in text

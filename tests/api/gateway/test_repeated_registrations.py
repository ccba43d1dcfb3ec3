# SPDX-License-Identifier: Apache-2.0
"""What comes again word for word is not decoded again, and never taken for something else.

A gateway with a real fold; what went down to the log is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.gateway.registrations import kept_bytes
from dev.histories.steps import Send
from dev.model import codes
from dev.model.client import RemotingClient
from dev.support.local import LocalGateway, LocalLake
from remoting.codec import commands
from remoting.codec.registration import decode_registration
from schemas.events import Actor, BrokerHeartbeat, Clock, EventEncoder, RegisterBroker, Resume, decode
from tests.examples.parts import ADDR1, T1, T2, A, config, mapping, put, register, route, unregister, version


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    with LocalLake(tmp_path) as lake:
        yield lake


@pytest.fixture
def gateway(lake: LocalLake) -> Iterator[LocalGateway]:
    with lake.gateway(clock_interval_s=3600.0) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: LocalGateway) -> Iterator[RemotingClient]:
    with gateway.connect() as client:
        yield client


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each body that was decoded."""
    sizes: list[int] = []
    real = decode_registration

    def counted(body: bytes, *args: object, **kwargs: object) -> object:
        sizes.append(len(body))
        return real(body, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "decode_registration", counted)
    return sizes


def events(lake: LocalLake) -> list[object]:
    found = [decode(record.payload) for record in lake.log.read(0, max_records=10_000)]
    return [event for event in found if not isinstance(event, Clock | Resume)]


def tables(lake: LocalLake) -> list[object]:
    """What each registration on the log brought: topic names, or None where they were left out."""
    return [
        None if event.topic_config_table is None else sorted(event.topic_config_table)
        for event in events(lake)
        if isinstance(event, RegisterBroker)
    ]


def say(client: RemotingClient, send: Send) -> None:
    answer = client.call(send.request())
    assert answer.code == codes.SUCCESS, answer


def has_route(client: RemotingClient, topic: str) -> bool:
    return client.call(route(topic).step.request()).code == codes.SUCCESS


def test_a_registration_is_decoded_once_and_goes_down_without_topics(
    lake: LocalLake, client: RemotingClient, decoded: list[int]
) -> None:
    first = register(A, ADDR1, topics=[config(T1), config(T2)])
    for _ in range(4):
        say(client, first)
    assert len(decoded) == 1
    assert tables(lake) == [[T1, T2], None, None, None]
    full, *slim = (event for event in events(lake) if isinstance(event, RegisterBroker))
    for event in slim:
        assert (event.data_version, event.topic_config_digest, event.channel, event.actor) == (
            full.data_version,
            full.topic_config_digest,
            full.channel,
            full.actor,
        )


def test_one_byte_makes_another(lake: LocalLake, client: RemotingClient, decoded: list[int]) -> None:
    for queues in (4, 4, 5, 4, 4):
        say(client, register(A, ADDR1, topics=[config(T1, queues=queues), config(T2)], at=version(counter=queues)))
        rows = json.loads(client.call(route(T1).step.request()).body)["queueDatas"]
        assert rows[0]["readQueueNums"] == queues
    assert len(decoded) == 3
    assert tables(lake) == [[T1, T2], None, [T1, T2], [T1, T2], None]


def test_a_header_field_makes_another(lake: LocalLake, client: RemotingClient, decoded: list[int]) -> None:
    for zone in ("a", "a", "b"):
        say(client, register(A, ADDR1, topics=[config(T1), config(T2)], zone=zone))
    assert len(decoded) == 2


def test_a_broker_that_left_sends_a_full_registration_again(
    lake: LocalLake, client: RemotingClient, decoded: list[int]
) -> None:
    mine = register(A, ADDR1, topics=[config(T1), config(T2)])
    say(client, mine)
    say(client, mine)
    say(client, unregister(A, ADDR1))
    assert not has_route(client, T1)
    say(client, mine)
    assert has_route(client, T1)
    assert len(decoded) == 2
    assert tables(lake) == [[T1, T2], None, [T1, T2]]


def test_another_connection_is_known_and_speaks_for_itself(
    lake: LocalLake, gateway: LocalGateway, client: RemotingClient, decoded: list[int]
) -> None:
    mine = register(A, ADDR1, topics=[config(T1), config(T2)])
    with gateway.connect() as other:
        for connection in (client, other, other, client):
            say(connection, mine)
        channels = [event.channel for event in events(lake) if isinstance(event, RegisterBroker)]
    assert len(decoded) == 1
    assert channels[0] == channels[3] != channels[1] == channels[2]
    # The last connection that registered the broker holds it. The loss of the other one changes nothing.
    assert has_route(client, T1)


def test_parts_that_take_turns_are_not_mixed_up(lake: LocalLake, client: RemotingClient) -> None:
    """registrationSplit: the same DataVersion, other topics."""
    parts = [register(A, ADDR1, topics=[config(T1), config(topic)]) for topic in ("part-1", "part-2")]
    for _ in range(3):
        for part in parts:
            say(client, part)
    assert tables(lake) == [["part-1", T1], ["part-2", T1]] * 3
    assert all(has_route(client, topic) for topic in ("part-1", "part-2"))


def test_a_version_without_a_time_is_another_each_time(
    lake: LocalLake, client: RemotingClient, decoded: list[int]
) -> None:
    """DataVersion's timestamp is then the time of receipt."""
    mine = register(A, ADDR1, topics=[config(T1), config(T2)], at={"counter": 1, "stateVersion": 0})
    for _ in range(3):
        say(client, mine)
    assert len(decoded) == 3


def test_deleting_what_is_left_out_needs_every_one_in_full(tmp_path: Path, decoded: list[int]) -> None:
    settings: dict[str, Any] = {"delete_topic_with_broker_registration": True, "clock_interval_s": 3600.0}
    with LocalLake(tmp_path) as lake, lake.gateway(**settings) as gateway, gateway.connect() as client:
        for _ in range(3):
            say(client, register(A, ADDR1, topics=[config(T1), config(T2)]))
        assert tables(lake) == [[T1, T2]] * 3
    assert len(decoded) == 3


def test_heartbeats_are_the_same_event(lake: LocalLake, client: RemotingClient) -> None:
    mine = register(A, ADDR1)
    say(client, mine)
    beat = Send(codes.BROKER_HEARTBEAT, mine.ext)
    for _ in range(3):
        say(client, beat)
    last = [record.payload for record in lake.log.read(0, max_records=100)][-3:]
    assert len(set(last)) == 1


def test_a_large_registration_is_not_cached(gateway: LocalGateway, client: RemotingClient) -> None:
    """Topic queue mappings go down with every registration."""
    mappings = [mapping(f"static-{number}-{number**9}", f"other-{number**8}") for number in range(2_000)]
    say(client, register(A, ADDR1, topics=[config(T1), config(T2)]))
    assert last_of(gateway).request is not None
    say(client, register(A, ADDR1, mappings=mappings))
    assert last_of(gateway).request is last_of(gateway).repeat is None


@pytest.mark.parametrize("sent", ["a header field", "a field of the event"])
def test_long_fields_are_not_kept_however_well_they_compress(
    gateway: LocalGateway, client: RemotingClient, sent: str
) -> None:
    mine = register(A, ADDR1)
    name = "junk" if sent == "a header field" else "zoneName"
    long = Send(mine.code, {**mine.ext, name: "x" * 20_000}, mine.body, mine.version)
    for _ in range(2):
        client.call(long.request())
        client.call(Send(codes.BROKER_HEARTBEAT, {**mine.ext, "junk": "x" * 20_000}).request())
    assert last_of(gateway).request is last_of(gateway).repeat is None
    handler = gateway.parts.handler
    assert handler._registrations._last._last.bytes < 1_000
    (connection,) = gateway.parts.server.connections.values()
    assert connection.heartbeat is None


def test_a_large_answer_is_the_same_object_for_all(gateway: LocalGateway, client: RemotingClient) -> None:
    """ORDER_TOPIC_CONFIG, which is in the answer to every registration, and a KV list."""
    handler = gateway.parts.handler

    def order_topic_config() -> bytes:
        body = handler._kv_body("ORDER_TOPIC_CONFIG", gateway.gateway.view.kv_table("ORDER_TOPIC_CONFIG"))
        assert body is not None
        return body

    for key in ("a", "b"):
        say(client, put("ORDER_TOPIC_CONFIG", key, "v" * 50_000))
    say(client, put("other", "a", "small"))
    first = order_topic_config()
    assert order_topic_config() is first
    assert json.loads(client.call(register(A, ADDR1).request()).body)["table"].keys() == {"a", "b"}
    say(client, put("other", "b", "x"))
    assert order_topic_config() is first
    say(client, put("ORDER_TOPIC_CONFIG", "c", "x"))
    assert json.loads(order_topic_config())["table"].keys() == {"a", "b", "c"}


def last_of(gateway: LocalGateway) -> Any:
    """What is kept of the only broker's last registration."""
    ((last, _size),) = gateway.parts.registrations._last._last._entries.values()
    return last


def test_wide_characters_count_as_what_they_take() -> None:
    """One character beyond the Basic Multilingual Plane makes Python take four bytes for each of a text."""
    event = BrokerHeartbeat(actor=Actor("g", "remoting"), cluster_name="c", broker_name="b", broker_addr="a")
    payload = EventEncoder().encode(event)
    plain, wide = {"x": "a" * 4_000}, {"x": "\N{GRINNING FACE}" + "a" * 3_999}
    assert (kept_bytes(plain, payload) or 0) > 8_000
    assert (kept_bytes(wide, payload) or 0) > 32_000
    assert kept_bytes({"x": "\N{GRINNING FACE}" + "a" * 6_000}, payload) is None

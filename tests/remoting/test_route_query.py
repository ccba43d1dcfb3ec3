# SPDX-License-Identifier: Apache-2.0
"""Route requests recognised without parsing: what is found is what decoding would have found."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.connection import RemotingConnection
from remoting.frame import FLAG_ONEWAY, RemotingCommand, decode_frame, encode_frame
from remoting.route_query import RouteQuery, RouteQueryCache, route_query
from schemas.codes import SerializeType
from schemas.errors import ProtocolError
from tests.remoting.test_frame import frame


def received(header: bytes, cache: RouteQueryCache) -> tuple[RouteQuery, bytes]:
    (request,) = RemotingConnection(queries=cache).receive_data(frame(header))
    assert isinstance(request, tuple)
    return request


def stock(opaque: object, topic: str = "orders", version: int = 513) -> bytes:
    return (
        f'{{"code":105,"extFields":{{"topic":"{topic}"}},"flag":0,"language":"JAVA","opaque":{opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode()


def test_the_same_kind_is_the_same_object() -> None:
    cache = RouteQueryCache()
    first, digits = received(stock(0), cache)
    assert digits == b"0"
    for opaque in (1, 43, 999_999_999):
        assert received(stock(opaque), cache) == (first, b"%d" % opaque)
    assert len(cache) == 1
    assert received(stock(1, "others"), cache)[0] is not first
    assert received(stock(1, version=399), cache)[0] is not first
    assert len(cache) == 3


def opened(cache: RouteQueryCache) -> RemotingConnection:
    """A connection that has sent a request before."""
    connection = RemotingConnection(queries=cache)
    assert connection.receive_data(frame(stock(7)))
    return connection


OPAQUES = [0, 1, 9, 10, 43, 99, 999_999_999, 1_000_000_000, 2_147_483_647, -1, -5, -12, "01", "1_", "+1", "1 ", "", "x"]


@pytest.mark.parametrize("opaque", OPAQUES)
def test_a_frame_known_as_a_whole_is_what_it_is_piece_by_piece(opaque: object) -> None:
    """However many digits have come before."""
    cache = RouteQueryCache()
    for digits in range(1, 11):
        for _ in range(2):  # a header is learnt first, then a frame
            RemotingConnection(queries=cache).receive_data(frame(stock(10 ** (digits - 1))))
    found = opened(cache).receive_route(frame(stock(opaque)))
    if found is None:
        assert not str(opaque).isdigit() or len(str(opaque)) > 9 or str(opaque) == "01"
    else:
        assert [found] == opened(cache).receive_data(frame(stock(opaque)))


def test_only_a_whole_frame_alone_is_known_at_once() -> None:
    cache = RouteQueryCache()
    known = frame(stock(43))
    for _ in range(2):
        opened(cache).receive_data(known)
    assert opened(cache).receive_route(known) is not None
    connection = RemotingConnection(queries=cache)
    assert connection.receive_route(known) is None, "its first bytes may be a preamble's"
    for data in (known[:-1], known + known[:1], known + known, known[1:], b"", frame(stock(44, "others"))):
        assert opened(cache).receive_route(data) is None
    connection = opened(cache)
    connection.receive_data(known[:30])
    assert connection.receive_route(known) is None, "it is the rest of a frame that has begun"
    longer = known[:3] + bytes([known[3] + 1]) + known[4:]
    assert opened(cache).receive_route(longer) is None


@pytest.mark.parametrize("opaque", [-5, 1_000_000_000, 2_147_483_647, -2_147_483_648])
def test_an_unusual_opaque_takes_the_long_way_to_the_same_answer(opaque: int) -> None:
    cache = RouteQueryCache()
    received(stock(1), cache)
    query, digits = received(stock(opaque), cache)
    assert query.command(digits) == decode_frame(frame(stock(opaque)))


@pytest.mark.parametrize("opaque", ["1_0", "0x1", "", "-", "1 2", "2147483648", "01", "+1"])
def test_an_opaque_that_is_none_is_refused_whatever_is_known(opaque: str) -> None:
    cache = RouteQueryCache()
    received(stock(1), cache)
    with pytest.raises(ProtocolError):
        RemotingConnection(queries=cache).receive_data(frame(stock(opaque)))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":105,"extFields":{"opaque":1,"topic":"a"},"flag":0}',
        b'{"code":105,"extFields":{"opaque":1,"topic":"a"},"opaque":7,"flag":0}',
        b'{"code":105,"opaque":1,"opaque":2,"extFields":{"topic":"a"}}',
        b'{"code":105,"extFields":{"topic":"\\"opaque\\":1,"},"flag":0,"opaque":3}',
        b'{"code":105,"x":"\\\\"opaque":1,"flag":0}',
        b'{"code":105,"extFields":{"topic":"a"},"opaque":5}',
        b'{"code":105,"extFields":{"topic":"a"},"opaque":"5","flag":0}',
        b'{"code":105,"extFields":{"topic":"a"},"opaque": 5,"flag":0}',
        b'{"code":105,"extFields":{"topic":"a"},"flag":0}',
    ],
)
def test_a_header_that_only_looks_alike_is_never_remembered(header: bytes) -> None:
    cache = RouteQueryCache()
    try:
        query, digits = received(header, cache)
    except ProtocolError:
        pass
    else:
        assert query.command(digits) == decode_frame(frame(header))
    assert len(cache) == 0


def test_a_long_header_is_not_remembered() -> None:
    cache = RouteQueryCache(max_header_bytes=200)
    received(stock(1, "x" * 200), cache)
    assert len(cache) == 0


def test_a_request_with_a_body_is_not_remembered() -> None:
    cache = RouteQueryCache()
    ((query, digits),) = RemotingConnection(queries=cache).receive_data(frame(stock(1), b"body"))
    assert query.command(digits).body == b"body"
    assert len(cache) == 0


def test_a_full_cache_forgets_and_goes_on() -> None:
    cache = RouteQueryCache(max_bytes=10_000)
    for number in range(100):
        assert received(stock(number, f"topic-{number}"), cache)[0].topic == f"topic-{number}"
        assert len(cache) <= 20


@pytest.mark.parametrize("kind", SerializeType)
def test_nobody_drives_out_what_another_uses(kind: SerializeType) -> None:
    """Any number of headers, of topics that exist or not, leaves the kinds in use the very same objects."""
    cache = RouteQueryCache(max_bytes=100_000)

    def ask(topic: str, opaque: int) -> RouteQuery:
        data = encode_frame(RemotingCommand(105, {"topic": topic}, opaque=opaque), kind)
        ((query, _),) = RemotingConnection(queries=cache).receive_data(data)
        return query

    used = [ask(f"used-{number}", number) for number in range(10)]
    for number in range(2_000):
        assert ask(f"junk-{number}", number).is_kept
        if number % 40 == 0:
            assert [ask(f"used-{index}", number) for index in range(10)] == used


def test_what_is_remembered_is_bounded_by_what_it_really_takes() -> None:
    """Headers, and whole frames with every number of digits."""
    limit = 2_000_000
    cache = RouteQueryCache(max_bytes=limit)
    RemotingConnection(queries=cache).receive_data(frame(stock(1)))
    frames = [frame(stock(10**digits, f"topic-{number}" * 20)) for number in range(1_000) for digits in range(9)]
    tracemalloc.start()
    try:
        for data in frames:
            RemotingConnection(queries=cache).receive_data(data)
            RemotingConnection(queries=cache).receive_data(data)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit / 2 < held < 2 * limit


def test_other_codes_and_oneway_requests_are_no_queries() -> None:
    cache = RouteQueryCache()
    for command in (RemotingCommand(106), RemotingCommand(105, {"topic": "a"}, flag=FLAG_ONEWAY)):
        for kind in SerializeType:
            data = encode_frame(command, kind)
            (found,) = RemotingConnection(queries=cache).receive_data(data)
            assert found == decode_frame(data)
    assert len(cache) == 0


def test_a_binary_header_is_recognised_by_all_but_its_opaque() -> None:
    cache = RouteQueryCache()
    seen = set()
    for opaque in (0, 1, -1, 2_147_483_647, -2_147_483_648, 0x22222222):
        command = RemotingCommand(105, {"topic": "a"}, opaque=opaque, serialize_type=SerializeType.ROCKETMQ)
        ((query, digits),) = RemotingConnection(queries=cache).receive_data(encode_frame(command))
        assert query.command(digits) == command
        seen.add(id(query))
    assert len(seen) == len(cache) == 1


@pytest.mark.parametrize(
    ("version", "ext", "numeric_keys", "zone_name"),
    [
        (513, {}, False, None),
        (401, {}, False, None),
        (400, {}, True, None),
        (0, {}, True, None),
        (0, {"acceptStandardJsonOnly": "TRUE"}, False, None),
        (0, {"acceptStandardJsonOnly": "yes"}, True, None),
        (513, {"__ZONE_MODE": "true", "__ZONE_NAME": "HZ"}, True, "HZ"),
        (513, {"__ZONE_MODE": "true", "__ZONE_NAME": " "}, False, None),
        (513, {"__ZONE_MODE": "true"}, False, None),
        (513, {"__ZONE_MODE": "false", "__ZONE_NAME": "HZ"}, False, None),
        (513, {"__ZONE_NAME": "HZ"}, False, None),
    ],
)
def test_dialect_and_zone_follow_from_version_and_fields(
    version: int, ext: dict[str, str], numeric_keys: bool, zone_name: str | None
) -> None:
    query = route_query(RemotingCommand(105, {"topic": "a", **ext}, version=version))
    assert (query.topic, query.version, query.numeric_keys, query.zone_name) == ("a", version, numeric_keys, zone_name)


def test_a_query_without_topic() -> None:
    assert route_query(RemotingCommand(105)).topic is None


topics = st.text(max_size=10) | st.sampled_from(('"opaque":1,', "a", 'x","opaque":5,"y":"'))


@given(
    st.lists(st.tuples(topics, st.integers(-10, 1 << 31), st.sampled_from((0, 399, 513)), st.booleans()), max_size=8)
)
def test_with_a_shared_cache_every_header_reads_as_if_decoded(headers: list[tuple[str, int, int, bool]]) -> None:
    cache = RouteQueryCache(max_bytes=5_000)
    for topic, opaque, version, opaque_first in headers:
        fields: dict[str, object] = {"extFields": {"topic": topic}, "opaque": opaque, "version": version, "code": 105}
        if opaque_first:
            fields = dict(reversed(fields.items()))
        data = frame(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())
        try:
            expected = decode_frame(data)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                RemotingConnection(queries=cache).receive_data(data)
            continue
        ((query, digits),) = RemotingConnection(queries=cache).receive_data(data)
        assert query.command(digits) == expected

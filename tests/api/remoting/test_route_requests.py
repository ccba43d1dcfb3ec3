# SPDX-License-Identifier: Apache-2.0
"""Route requests recognised without parsing: what is found is what decoding would have found."""

from __future__ import annotations

import itertools
import json
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.remoting.route_requests import RouteRequest, RouteRequests
from dev.support.frames import decode_frame
from remoting.codec.commands import read_route_query
from remoting.codec.connection import RemotingConnection
from remoting.codec.frame import FLAG_ONEWAY, RemotingCommand, encode_frame
from remoting.codec.reply import EncodedReply, response
from schemas.codes import SerializeType
from schemas.errors import ProtocolError


def frame(header: bytes, body: bytes = b"") -> bytes:
    """A frame with this JSON header, whatever is in it."""
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def no_reply(query: RouteRequest) -> EncodedReply:
    raise AssertionError(query.topic)


def requests(max_bytes: int = 1_000_000) -> RouteRequests:
    return RouteRequests(no_reply, max_bytes)


REPLY = EncodedReply(response())


def with_reply(query: RouteRequest) -> EncodedReply:
    """A broker has the topic."""
    query.reply = REPLY
    return REPLY


def receive(data: bytes, known: RouteRequests) -> tuple[RouteRequest, bytes]:
    """What one connection more makes of one route request."""
    (request,) = RemotingConnection(inline=known).receive_data(data)
    assert isinstance(request, tuple)
    query, digits = request
    assert isinstance(query, RouteRequest)
    return query, digits


def received(header: bytes, known: RouteRequests) -> tuple[RouteRequest, bytes]:
    return receive(frame(header), known)


def asked_for(query: RouteRequest, digits: bytes) -> tuple[str | None, bool, str | None, int]:
    return query.topic, query.form.numeric_keys, query.form.zone, int(digits)


def decoded(data: bytes) -> tuple[str | None, bool, str | None, int]:
    """What decoding in full tells."""
    command = decode_frame(data)
    return *read_route_query(command), command.opaque


def stock(opaque: object, topic: str = "orders", version: int = 513) -> bytes:
    return (
        f'{{"code":105,"extFields":{{"topic":"{topic}"}},"flag":0,"language":"JAVA","opaque":{opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode()


def test_the_same_kind_is_the_same_object() -> None:
    known = RouteRequests(with_reply)

    def ask(header: bytes) -> tuple[RouteRequest, bytes]:
        query, digits = received(header, known)
        query.answer()
        return query, digits

    first, digits = ask(stock(0))
    assert digits == b"0"
    for opaque in (1, 43, 999_999_999):
        assert ask(stock(opaque)) == (first, b"%d" % opaque)
    assert len(known) == 1
    for _ in range(2):
        assert ask(stock(1, "others"))[0] is not first
        assert ask(stock(1, version=399))[0] is not first
    assert len(known) == 3


OPAQUES = [0, 1, 9, 10, 43, 99, 999_999_999, 1_000_000_000, 2_147_483_647, -1, -5, -12, "01", "1_", "+1", "1 ", "", "x"]


@pytest.mark.parametrize("opaque", OPAQUES)
def test_what_is_found_is_what_decoding_finds(opaque: object) -> None:
    known, data = requests(), frame(stock(opaque))
    received(stock(1), known)
    try:
        expected = decoded(data)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            RemotingConnection(inline=known).receive_data(data)
    else:
        assert asked_for(*receive(data, known)) == expected


@given(st.lists(st.sampled_from(["a", "b", "echo"]), max_size=12), st.lists(st.integers(0, 2_000), max_size=9))
def test_requests_are_recognised_however_they_are_cut(topics: list[str], cuts: list[int]) -> None:
    known = requests()
    frames = [
        encode_frame(RemotingCommand(106 if topic == "echo" else 105, {"topic": topic}, opaque=number))
        for number, topic in enumerate(topics)
    ]
    data, connection, found = b"".join(frames), RemotingConnection(inline=known), []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        for request in connection.receive_data(data[start:end]):
            if isinstance(request, tuple):
                query, digits = request
                assert isinstance(query, RouteRequest)
                found.append((query.topic, int(digits)))
            else:
                found.append(("echo", request.opaque))
    assert found == [(topic, number) for number, topic in enumerate(topics)]


@pytest.mark.parametrize("opaque", [-5, 1_000_000_000, 2_147_483_647, -2_147_483_648])
def test_an_unusual_opaque_takes_the_long_way_to_the_same_answer(opaque: int) -> None:
    known = requests()
    received(stock(1), known)
    assert asked_for(*received(stock(opaque), known)) == decoded(frame(stock(opaque)))


@pytest.mark.parametrize("opaque", ["1_0", "0x1", "", "-", "1 2", "2147483648", "01", "+1"])
def test_an_opaque_that_is_none_is_refused_whatever_is_known(opaque: str) -> None:
    known = requests()
    received(stock(1), known)
    with pytest.raises(ProtocolError):
        RemotingConnection(inline=known).receive_data(frame(stock(opaque)))


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
    known = requests()
    try:
        query, digits = received(header, known)
    except ProtocolError:
        pass
    else:
        assert asked_for(query, digits) == decoded(frame(header))
    assert len(known) == 0


def test_a_long_header_is_not_remembered() -> None:
    known = requests()
    received(stock(1, "x" * 512), known)
    assert len(known) == 0


def test_a_request_with_a_body_is_not_remembered() -> None:
    known = requests()
    for _ in range(2):
        assert asked_for(*receive(frame(stock(1), b"body"), known)) == ("orders", False, None, 1)
    assert len(known) == 0


def test_a_full_cache_forgets_and_goes_on() -> None:
    known = requests(10_000)
    for number in range(100):
        assert received(stock(number, f"topic-{number}"), known)[0].topic == f"topic-{number}"
        assert len(known) <= 20


@pytest.mark.parametrize("kind", SerializeType)
def test_nobody_drives_out_what_another_uses(kind: SerializeType) -> None:
    """Any number of headers, of topics that exist or not, leaves the kinds in use the very same objects."""
    known = RouteRequests(with_reply, 100_000)

    def ask(topic: str, opaque: int) -> RouteRequest:
        query, _ = receive(encode_frame(RemotingCommand(105, {"topic": topic}, opaque=opaque), kind), known)
        query.answer()
        return query

    used = [ask(f"used-{number}", number) for number in range(10)]
    for number in range(2_000):
        ask(f"junk-{number}", number)
        if number % 40 == 0:
            assert [ask(f"used-{index}", number) for index in range(10)] == used
    assert 50 < len(known) < 200


@pytest.mark.parametrize("kind", SerializeType)
def test_what_is_remembered_is_bounded_by_what_it_really_takes(kind: SerializeType) -> None:
    limit = 2_000_000
    known = RouteRequests(with_reply, limit)
    frames = [
        encode_frame(RemotingCommand(105, {"topic": f"topic-{number}" * 20}, opaque=1), kind) for number in range(5_000)
    ]
    tracemalloc.start()
    try:
        for data in frames:
            receive(data, known)[0].answer()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit / 2 < held < 1.25 * limit


def test_replies_are_forgotten_with_the_view_they_are_of() -> None:
    known = requests()
    query, _ = received(stock(1), known)
    query.reply = EncodedReply(response())
    known.forget_replies()
    assert received(stock(2), known)[0] is query
    assert query.reply is None


def test_other_codes_and_oneway_requests_are_no_queries() -> None:
    known = requests()
    for command in (RemotingCommand(106), RemotingCommand(105, {"topic": "a"}, flag=FLAG_ONEWAY)):
        for kind in SerializeType:
            data = encode_frame(command, kind)
            (found,) = RemotingConnection(inline=known).receive_data(data)
            assert found == decode_frame(data)
    assert len(known) == 0


def test_a_binary_header_is_recognised_by_all_but_its_opaque() -> None:
    known = requests()
    seen = set()
    for opaque in (0, 1, -1, 2_147_483_647, -2_147_483_648, 0x22222222):
        command = RemotingCommand(105, {"topic": "a"}, opaque=opaque, serialize_type=SerializeType.ROCKETMQ)
        query, digits = receive(encode_frame(command), known)
        assert asked_for(query, digits) == ("a", False, None, opaque)
        seen.add(id(query))
    assert len(seen) == len(known) == 1


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
    command = RemotingCommand(105, {"topic": "a", **ext}, version=version)
    assert read_route_query(command) == ("a", numeric_keys, zone_name)


def test_a_query_without_topic() -> None:
    assert read_route_query(RemotingCommand(105)) == (None, False, None)


def test_topics_that_nobody_has_are_understood_undecoded_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    known = RouteRequests(lambda _: REPLY)
    received(stock(1, "first"), known)
    assert len(known) == 1
    monkeypatch.setattr("remoting.codec.connection.decode_header", None)
    for number in range(1_000):
        topic = f"%RETRY%group-{number}"
        query, digits = received(stock(number, topic), known)
        query.answer()
        assert asked_for(query, digits) == (topic, False, None, number)
    assert len(known) == 1


topics = (
    st.text(max_size=10) | st.text("%|aA0_-", max_size=3) | st.sampled_from(('"opaque":1,', "a", 'x","opaque":5,"y":"'))
)


@given(
    st.lists(st.tuples(topics, st.integers(-10, 1 << 31), st.sampled_from((0, 399, 513)), st.booleans()), max_size=8)
)
def test_with_a_shared_cache_every_header_reads_as_if_decoded(headers: list[tuple[str, int, int, bool]]) -> None:
    known = requests(5_000)
    for topic, opaque, version, opaque_first in headers:
        fields: dict[str, object] = {"extFields": {"topic": topic}, "opaque": opaque, "version": version, "code": 105}
        if opaque_first:
            fields = dict(reversed(fields.items()))
        data = frame(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())
        try:
            expected = decoded(data)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                RemotingConnection(inline=known).receive_data(data)
            continue
        assert asked_for(*receive(data, known)) == expected


def test_a_move_of_the_view_costs_what_was_asked_since_the_one_before() -> None:
    """A client that makes the gateway remember 50,000 headers makes no later move slower."""
    asked = []

    def answer(query: RouteRequest) -> EncodedReply:
        asked.append(query.topic)
        query.reply = EncodedReply(response())
        return query.reply

    known = RouteRequests(answer)
    for number in range(5_000):
        found = known.learn(*_learnt(f"T{number}"))
        assert found is not None
        found[0].answer()
    assert len(known._with_replies) == 5_000
    known.forget_replies()
    assert len(known._with_replies) == 0
    again = known.find(0, _learnt("T7")[0])
    assert again is not None
    assert again[0].reply is None
    again[0].answer()
    assert len(known._with_replies) == 1
    known.forget_replies()
    assert again[0].reply is None


def _learnt(topic: str) -> tuple[bytes, RemotingCommand]:
    command = RemotingCommand(105, {"topic": topic}, opaque=7)
    return encode_frame(command)[8:], command

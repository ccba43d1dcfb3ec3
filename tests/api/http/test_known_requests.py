"""A request that came before is answered as if it were the first of its kind: every byte, whatever comes around it.

Two servers over one gateway: one knows requests, one never learns any. Connections are in memory, so that segments are
cut where the test wants them; `test_server` has the real socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.app import create_app
from api.http.known import MAX_REQUEST_BYTES, KnownRequests
from api.http.settings import HttpSettings
from schemas.events import Actor, Clock
from tests.api.http.doors import Door, broker
from tests.api.http.wire import Wire, told

PATH = b"/v1/topics/orders/route"


def get(path: bytes = PATH, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, path, version, b"".join(h + b"\r\n" for h in (b"Host: a", *headers)))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A door whose view moves only when a test writes."""
    door = Door(tmp_path_factory.mktemp("quiet"), clock_interval_s=3600.0)
    assert door.register(broker()).json()["visible"]
    door.settled()
    yield door
    door.close()


def tag(door: Door, topic: str = "orders") -> bytes:
    return str(door.get(f"/v1/topics/{topic}/route").headers["etag"]).encode()


def wires(door: Door, **settings: Any) -> tuple[Wire, Wire]:
    """One that knows, one that never learns."""
    apps = [create_app(door.gateway, settings=HttpSettings(**settings)) for _ in range(2)]
    return Wire(apps[0]), Wire(apps[1], KnownRequests(max_requests=0))


LEARNT: dict[str, bytes] = {
    "plain": get(),
    "no headers": b"GET %b HTTP/1.1\r\n\r\n" % PATH,
    "other host": get(PATH, b"Host: elsewhere.example:99"),
    "accept": get(PATH, b"Accept: text/html", b"Accept-Encoding: gzip", b"User-Agent: x"),
    "keep-alive": get(PATH, b"Connection: Keep-Alive"),
    "another's tag": get(PATH, b'If-None-Match: "1-0000"'),
    "any tag": get(PATH, b"If-None-Match: *"),
    "two tags": get(PATH, b'If-None-Match: "1-0000"', b"If-None-Match: nonsense"),
    "range": get(PATH, b"Range: bytes=0-1"),
    "escaped": get(b"/v1/topics/%6frders/route"),
    "fragment": get(PATH + b"#part"),
    "absolute": get(b"http://a" + PATH),
    "empty query": get(PATH + b"?"),
    "longest": get(PATH, b"X: " + b"a" * (MAX_REQUEST_BYTES - len(get(PATH, b"X: ")))),
}
NEVER: dict[str, bytes] = {
    "HEAD": get(method=b"HEAD"),
    "OPTIONS": get(method=b"OPTIONS"),
    "lower case": get(method=b"get"),
    "close": get(PATH, b"Connection: close"),
    "HTTP/1.0": get(version=b"1.0"),
    "HTTP/1.0 keep-alive": get(PATH, b"Connection: keep-alive", version=b"1.0"),
    "HTTP/2.0": get(version=b"2.0"),
    "as_of": get(PATH + b"?as_of=1"),
    "wait_for": get(PATH + b"?wait_for=0"),
    "misspelt": get(PATH + b"?asof=1"),
    "token": get(PATH, b"Authorization: Bearer secret"),
    "wrong token": get(PATH, b"Authorization: Bearer wrong"),
    "cookie": get(PATH, b"Cookie: a=b"),
    "no such topic": get(b"/v1/topics/nowhere/route"),
    "no such name": get(b"/v1/topics/..%2Fx/route"),
    "no such path": get(b"/v1/nothing"),
    "no UTF-8": get(b"/v1/topics/%ff/route"),
    "other path": get(b"/v1/topics"),
    "long": get(PATH, b"X: " + b"a" * MAX_REQUEST_BYTES),
    "body": get(PATH, b"Content-Length: 2") + b"{}",
    "no body": get(PATH, b"Content-Length: 0"),
    "chunked": get(PATH, b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "expect": get(PATH, b"Expect: 100-continue"),
    "upgrade": get(PATH, b"Connection: Upgrade", b"Upgrade: websocket"),
    "upgrade to h2c": get(PATH, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: "),
    "POST": get(b"/v1/brokers/register", b"Content-Length: 2", method=b"POST") + b"{}",
    "CONNECT": get(b"a:80", method=b"CONNECT"),
    "line feeds": get().replace(b"\r\n", b"\n"),
    "folded": get(PATH, b"X: a\r\n b"),
    "before it": b"\r\n" + get(),
    "garbage": b"\x16\x03\x01\x02\x00\r\n\r\n",
}
ALL = {**LEARNT, **NEVER}
REFUSED = {"lower case", "HTTP/2.0", "line feeds", "folded", "garbage", "CONNECT", "upgrade", "upgrade to h2c"}
"""The parser refuses them, or what follows. That ends the connection with an answer under way, if there is one: how
much of it comes is a matter of time, so nothing can be said of these without waiting."""


@pytest.mark.parametrize("name", LEARNT)
def test_the_first_answer_and_those_after_it_are_one(quiet: Door, name: str) -> None:
    knowing, plain = wires(quiet)
    said = [LEARNT[name]] * 3
    found = told(quiet, knowing, said)
    assert found == told(quiet, plain, said)
    assert found[0] == found[1] == found[2]
    assert found[0].startswith((b"HTTP/1.1 200 OK\r\ndate: ", b"HTTP/1.1 304 Not Modified\r\ndate: "))
    assert (knowing.lane.hits, len(knowing.lane.known)) == (2, 1)
    assert plain.lane.hits == 0
    assert knowing.state.total_requests == plain.state.total_requests == 3
    # Others' connections know it, too.
    assert told(quiet, knowing, said[:1])[0] == found[0]
    assert knowing.lane.hits == 3


@pytest.mark.parametrize("name", NEVER)
def test_what_is_parsed_each_time(quiet: Door, name: str) -> None:
    knowing, plain = wires(quiet)
    assert told(quiet, knowing, [get(), get()]) == told(quiet, plain, [get(), get()])
    said = [NEVER[name], NEVER[name], get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.known.get(NEVER[name]) is None
    assert len(knowing.lane.known) == 1


def test_a_fresh_copy_is_not_sent_again(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(PATH, b"If-None-Match: " + tag(quiet))] * 3
    found = told(quiet, knowing, said)
    assert found == told(quiet, plain, said)
    assert found[2].startswith(b"HTTP/1.1 304 Not Modified\r\n")
    assert knowing.lane.hits == 2


def test_two_in_one_segment(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(), get() * 2, get() + b"GET /v1", b"/topics HTTP/1.1\r\n\r\n", get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1
    assert len(knowing.lane.known) == 1


def test_what_looks_known_inside_another_request_is_not(quiet: Door) -> None:
    """The head of one request, its body, or the tail of a segment: none is a request because it reads like one."""
    for around in (
        b"GET /v1/topics HTTP/1.1\r\nHost: a\r\nX: ",
        get(b"/v1/nothing", b"Content-Length: %d" % len(get())),
        get() + b"GET /v1/topics HTTP/1.1\r\nX: ",
        get() + get(b"/v1/nothing", b"Content-Length: %d" % len(get())),
        get(PATH, b"Transfer-Encoding: chunked") + b"%x\r\n" % len(get()),
        b"\r",
        b"\r\n",
        b"G",
        get(b"/v1/nothing", b"Connection: Upgrade", b"Upgrade: websocket"),
        get(b"a:80", method=b"CONNECT"),
    ):
        knowing, plain = wires(quiet)
        said = [get(), around, get(), get(), get()]
        for _ in range(2):
            assert told(quiet, knowing, said) == told(quiet, plain, said), around


def test_the_tail_of_a_request_teaches_nothing(quiet: Door) -> None:
    """Its last segment reads like a request of its own, and the whole is one that the short lane answers."""
    knowing, plain = wires(quiet)
    said = [b"GET /v1/topics/payments/route HTTP/1.1\r\nX: ", get(), get(), get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1


def test_an_empty_line_before_it_is_the_parsers(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(), b"\r\n", get(), get()]
    assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert knowing.lane.hits == 1


def test_what_is_asked_again_stays_known(quiet: Door) -> None:
    app = create_app(quiet.gateway, settings=HttpSettings())
    wire = Wire(app, KnownRequests(max_requests=1, idle_s=0.0))
    other = LEARNT["keep-alive"]
    told(quiet, wire, [get(), get(), other])
    assert wire.lane.known.get(other) is None
    told(quiet, wire, [other])  # nobody asked for the first meanwhile
    assert wire.lane.known.get(other) is not None
    assert len(wire.lane.known) == 1


def test_cut_anywhere(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    for place in range(1, len(get())):
        said = [get(), get()[:place], get()[place:], get()]
        assert told(quiet, knowing, said) == told(quiet, plain, said)
    assert len(knowing.lane.known) == 1


@st.composite
def conversations(draw: st.DrawFn, *, without: frozenset[str] = frozenset()) -> list[bytes]:
    """Requests, mostly in a segment each, some cut or glued."""
    often = ["plain"] * 12 + ["keep-alive"] * 6
    others = [name for name in ALL if name not in without]
    names = draw(st.lists(st.sampled_from(often + others), min_size=1, max_size=8))
    segments = [b""]
    for name in names:
        request = ALL[name]
        if draw(st.integers(0, 4)) == 0:
            place = draw(st.integers(0, len(request)))
            segments += [request[:place], request[place:]]
        elif draw(st.integers(0, 4)) == 0:
            segments[-1] += request
        else:
            segments.append(request)
    return [segment for segment in segments if segment]


@settings(deadline=None, max_examples=150)
@given(talk=st.lists(conversations(), min_size=1, max_size=3))
def test_any_conversation(quiet: Door, talk: list[list[bytes]]) -> None:
    knowing, plain = wires(quiet)
    for said in talk:
        assert told(quiet, knowing, said) == told(quiet, plain, said)


@settings(deadline=None, max_examples=150)
@given(talk=st.lists(conversations(without=frozenset(REFUSED)), min_size=1, max_size=3))
def test_any_conversation_that_does_not_wait_for_answers(quiet: Door, talk: list[list[bytes]]) -> None:
    knowing, plain = wires(quiet)
    for said in talk:
        assert told(quiet, knowing, said, waiting=False) == told(quiet, plain, said, waiting=False)


# --- the view moves ---


def test_a_changed_route_is_never_answered_from_before(make_door: Any) -> None:
    door = make_door(clock_interval_s=3600.0)
    knowing, plain = wires(door)
    seen: set[bytes] = set()
    for step in range(6):
        topics = ("payments",) if step == 4 else ("orders", "payments")
        brokers = broker(topics=topics, counter=step + 2)
        for config in brokers["topicConfigSerializeWrapper"]["topicConfigTable"].values():
            config["readQueueNums"] = step + 1
        assert door.register(brokers).json()["visible"]
        if step == 4:
            assert door.delete("/v1/topics/orders").json()["visible"]
        door.settled()
        conditional = get(PATH, b"If-None-Match: " + tag(door)) if step != 4 else get(PATH, b"If-None-Match: *")
        said = [get(), conditional, get(), conditional, get()]
        found = told(door, knowing, said)
        assert found == told(door, plain, said)
        assert found[0].startswith(b"HTTP/1.1 404" if step == 4 else b"HTTP/1.1 200")
        assert found[0] not in seen
        seen.add(found[0])
    assert knowing.lane.hits > 10


def test_the_position_moves_without_the_route(make_door: Any) -> None:
    door = make_door(clock_interval_s=3600.0)
    assert door.register(broker()).json()["visible"]
    door.settled()
    knowing, plain = wires(door)
    first = told(door, knowing, [get()] * 2)
    assert door.put("/v1/kv/ns/key", {"value": "1"}).json()["visible"]
    door.settled()
    second = told(door, knowing, [get()] * 2)
    assert second == told(door, plain, [get()] * 2)
    assert second[0] == second[1] != first[1]
    serial = door.gateway.view.serial
    door.loop.run(door.gateway.append(Clock(actor=Actor("gw", "http"))))
    door.settled()
    assert door.gateway.view.serial == serial  # no epoch: only the offset is another
    third = told(door, knowing, [get()])
    assert third == told(door, plain, [get()])
    assert third[0] != second[0]
    assert knowing.lane.hits == 4


def test_the_date_moves(quiet: Door) -> None:
    knowing, _ = wires(quiet)
    first = told(quiet, knowing, [get()] * 2)
    knowing.state.default_headers = [(b"date", b"Sat, 21 Nov 2026 13:00:01 GMT")]
    then = told(quiet, knowing, [get()])
    assert then[0] == first[1].replace(b"13:00:00", b"13:00:01") != first[1]
    assert knowing.lane.hits == 2


# --- who may read, and what is counted ---


def test_protected_reads_are_never_known(quiet: Door) -> None:
    knowing, plain = wires(quiet, tokens={"alice": "secret"}, protect_reads=True)
    right, wrong = get(PATH, b"Authorization: Bearer secret"), get(PATH, b"Authorization: Bearer wrong")
    said = [right, right, wrong, get(), right, wrong]
    found = told(quiet, knowing, said)
    assert found == told(quiet, plain, said)
    assert [answer[9:12] for answer in found[:6]] == [b"200", b"200", b"401", b"401", b"200", b"401"]
    assert (knowing.lane.hits, len(knowing.lane.known)) == (0, 0)


def test_they_are_counted(quiet: Door) -> None:
    knowing, plain = wires(quiet)
    said = [get(), get(), get(PATH, b"If-None-Match: *"), get(PATH, b"If-None-Match: *"), get(b"/v1/topics/no/route")]
    counted = []
    for wire in (knowing, plain):
        told(quiet, wire, said)
        text = b"".join(told(quiet, wire, [get(b"/metrics")])).decode()
        names = ("rocketmq_namesrv_requests_total", "rocketmq_namesrv_route_request_latency_count")
        counted.append([line for line in text.splitlines() if line.startswith(names)])
    assert counted[0] == counted[1]
    assert 'rocketmq_namesrv_requests_total{code="0",door="http",request="getTopicRoute"} 4.0' in counted[0]
    assert knowing.lane.hits == 2


# --- the connection ---


def test_a_client_that_does_not_read_is_not_written_to(quiet: Door) -> None:
    knowing, _ = wires(quiet)

    async def tell() -> None:
        connection = knowing.connect()
        connection.feed(get())
        await connection.idle()
        connection.feed(get())
        assert knowing.lane.hits == 1
        connection.take()
        connection.protocol.pause_writing()
        connection.feed(get())
        assert knowing.lane.hits == 1
        assert connection.take() == b""
        connection.protocol.resume_writing()
        await connection.idle()
        assert connection.take().startswith(b"HTTP/1.1 200")
        await connection.end()

    quiet.loop.run(tell())


def test_a_stop_closes_it(quiet: Door) -> None:
    knowing, _ = wires(quiet)

    async def tell() -> None:
        connection = knowing.connect()
        connection.feed(get())
        connection.protocol.shutdown()  # while it is under way: answered, then closed
        await connection.idle()
        assert b"connection: close" in connection.take()
        assert connection.transport.closed
        other = knowing.connect()
        other.feed(get())
        answer = other.take()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection" not in answer
        other.protocol.shutdown()
        assert other.transport.closed
        other.protocol.data_received(get())  # as if it had been read before the close
        assert other.take() == b""
        assert knowing.lane.hits == 1
        await other.idle()

    quiet.loop.run(tell())


def test_keep_alive_counts_from_the_last_answer(quiet: Door) -> None:
    knowing, _ = wires(quiet, keep_alive_s=0.3, header_timeout_s=0.1)

    async def tell() -> None:
        loop = asyncio.get_running_loop()
        connection = knowing.connect()
        connection.feed(get())
        await connection.idle()
        began = loop.time()
        while loop.time() < began + 0.5:
            await asyncio.sleep(0.01)
            connection.feed(get())
            last = loop.time()
        assert not connection.transport.closed
        while not connection.transport.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < last + 5
        assert loop.time() >= last + 0.25
        # The first request of a connection may be known: its deadline ends, its idle time begins.
        second = knowing.connect()
        second.feed(get())
        last = loop.time()
        while not second.transport.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < last + 5
        assert loop.time() >= last + 0.25
        assert b"408" not in second.take()

    quiet.loop.run(tell())
    assert knowing.lane.hits > 5

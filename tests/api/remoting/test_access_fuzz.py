# SPDX-License-Identifier: Apache-2.0
"""Any bytes, plain, through TLS, or as TLS itself: without a proof the gateway writes only the refusal, and serves the next
client."""

from __future__ import annotations

import contextlib
import itertools
import resource
import socket
import ssl
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.model import codes
from dev.model.client import RemotingClient, encode_frame
from dev.model.wire import Request
from dev.support.accounts import SECRETS, sign
from dev.support.certificates import Authority
from dev.support.local import LocalGateway
from schemas import events
from schemas.tls import TlsMode
from security.roles import BOUND, NEEDED
from security.tls_config import TlsSettings
from security.tls_rotation import Tls
from tests.api.remoting.gateways import a_gateway
from tests.examples.parts import T1, A, B, register, unregister, who

OWN = {"broker-a", "broker-c"}
"""What the account `bound` may speak for."""
ROUTE = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1})
REGISTRATION = register(A, "10.0.0.1:10911").request()
SIGNED = [
    sign(ROUTE, "reader"),
    sign(REGISTRATION, "bound"),
    sign(unregister(A, "10.0.0.1:10911").request(), "bound"),
    sign(Request(codes.BROKER_HEARTBEAT, who(A, "10.0.0.1:10911")), "bound"),
]
"""What a listener may have heard."""
CODES = [int(code) for code in NEEDED]
BOUND_CODES = [int(code) for code in BOUND]
THEIRS = b'{"queueDatas":[{"brokerName":"broker-b","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
NAMES = ["AccessKey", "Signature", "SecurityToken", "topic", "namespace", "key", "value", "__ZONE_NAME", "compressed"]
NAMES += list(SIGNED[1].ext)
VALUES = ["", "null", "0", "-1", "true", T1, A, B, "cluster-a", "10.0.0.2:10911", "é\U0001f600", "x" * 3_000, *SECRETS]
HEARTBEAT = Request(codes.BROKER_HEARTBEAT, who(B, "10.0.0.2:10911"))
_HANGS_S = 20.0
_HEARTBEAT_S = 10.0
"""A silent client is closed after two minutes, and its broker expires."""


def frame(request: Request, rng: Random) -> bytes:
    flag = rng.choice((0, 0, 2))
    return encode_frame(request.code, request.ext, request.body, opaque=7, flag=flag, header_type=rng.randrange(2))


def attack(rng: Random) -> bytes:
    """The bytes of one connection."""
    kind = rng.randrange(5)
    if kind == 0:  # heard, and sent as another request, or changed on its way
        heard = rng.choice(SIGNED)
        code = rng.choice([*CODES, rng.randrange(2_000)])
        return frame(Request(code, heard.ext, heard.body), rng)
    if kind == 1:
        data = bytearray(frame(rng.choice(SIGNED), rng))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            change = rng.randrange(3)
            if change == 0:
                data[at] = rng.randrange(256)
            elif change == 1:
                data[at:at] = rng.randbytes(rng.randint(1, 5))
            else:
                del data[at : at + rng.randint(1, 5)]
            if not data:
                break
        return bytes(data)
    if kind == 2:  # no proof at all
        ext = {rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randrange(8))}
        if rng.random() < 0.5:
            ext["AccessKey"] = rng.choice([*SECRETS, "who", ""])
            overheard = [one.ext["Signature"] for one in SIGNED]
            ext["Signature"] = rng.choice([*overheard, "", "!", "".join(rng.choices(string.printable, k=9))])
        return frame(Request(rng.choice(CODES), ext, rng.randbytes(rng.randrange(60))), rng)
    if kind == 3:  # a good signature over a bad body, or over names that are another's
        ext = {**REGISTRATION.ext, **{name: rng.choice(VALUES) for name in rng.sample(list(REGISTRATION.ext), 2)}}
        body = rng.choice((b"", b"{}", rng.randbytes(30), REGISTRATION.body, THEIRS))
        return frame(sign(Request(rng.choice(BOUND_CODES), ext, body), "bound"), rng)
    return rng.choice((b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n")) + rng.randbytes(rng.randrange(200))


def broken(records: bytes, rng: Random) -> bytes:
    """Records of TLS: changed, truncated, or sent twice."""
    data = bytearray(records)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 40))
            case 2:
                del data[at:]
            case _:
                data += records
    return bytes(data)


def send(gateway: LocalGateway, data: bytes, tls: ssl.SSLContext | None, rng: Random) -> None:
    """Until the other side has closed: one that hangs fails. By TLS, one time in four its own records are broken."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=_HANGS_S) as peer:
        try:
            if tls is None:
                peer.sendall(data)
            else:
                through_tls(peer, data, tls, broken_after=rng.randrange(12), rng=rng)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass
        except (ConnectionError, ssl.SSLError):
            pass


def through_tls(peer: socket.socket, data: bytes, context: ssl.SSLContext, *, broken_after: int, rng: Random) -> None:
    """Shake hands, send, say that it ends. What goes out as number 0 to 2 may be broken; then it does not go on."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    for number in itertools.count():
        is_open = True
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            is_open = False
        if is_open:
            session.write(data or b"\0")
            with contextlib.suppress(ssl.SSLWantReadError):
                session.unwrap()
        records = outgoing.read()
        if number == broken_after:
            peer.sendall(broken(records, rng))
            return
        peer.sendall(records)
        if is_open:
            return
        answer = peer.recv(1 << 16)
        if not answer:
            return
        incoming.write(answer)


def foreign(event: events.AnyEvent) -> bool:
    """Whether only an admin or another broker may have caused it."""
    match event:
        case events.AccessRefused() | events.Clock() | events.Resume():
            return False
        case events.RegisterTopic():
            return event.queue_data.broker_name not in OWN
        case events.RegisterBroker() | events.UnregisterBroker() | events.BrokerHeartbeat() | events.ChannelClosed():
            return event.broker_name not in OWN
        case _:
            return True


def is_its_own(event: events.AnyEvent) -> bool:
    """Whether it is a registration of the other broker, with a key that no client has seen."""
    return isinstance(event, events.BrokerHeartbeat) and event.broker_name == B and event.actor.user == "broker"


class Attacked:
    """A gateway, and what was written since it was looked at last."""

    def __init__(self, gateway: LocalGateway, client: RemotingClient, tls: ssl.SSLContext) -> None:
        self.gateway, self._client, self._tls = gateway, client, tls
        self._heard_s = time.monotonic()
        self._next = gateway.log.end().next_offset

    def by(self, rng: Random) -> None:
        data = attack(rng)
        send(self.gateway, data, rng.choice((None, self._tls)), rng)
        for record in self.gateway.log.read(self._next):
            self._next = record.offset + 1
            event = events.decode(record.payload)
            assert not foreign(event) or is_its_own(event), (event, data)
        if time.monotonic() - self._heard_s > _HEARTBEAT_S:
            self._heard_s = time.monotonic()
            assert self._client.call(sign(HEARTBEAT, "broker")).code == codes.SUCCESS

    def serves(self) -> bool:
        with self.gateway.connect() as client:
            return client.call(sign(Request(codes.GET_BROKER_CLUSTER_INFO), "reader")).code == codes.SUCCESS


@contextmanager
def attacked(folder: Path) -> Iterator[Attacked]:
    authority = Authority(folder)
    pair = authority.issue()
    tls = Tls(TlsSettings(TlsMode.PERMISSIVE, pair.cert, pair.key))
    with a_gateway(folder, tls=tls) as (gateway, client):
        assert client.call(sign(register(B, "10.0.0.2:10911", cluster="cluster-a").request(), "broker")).code == 0
        yield Attacked(gateway, client, authority.client())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("attacked")) as found:
        yield found


@settings(deadline=None, max_examples=min(300, 3 * settings().max_examples), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**64))
def test_any_frame(target: Attacked, seed: int) -> None:
    target.by(Random(seed))


def test_it_serves_after_that(target: Attacked) -> None:
    assert target.serves()
    assert target.gateway.gateway.live_view.view.live_rows(B), "nobody but its own account moves another's broker"


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_ten_minutes(tmp_path: Path) -> None:
    """No crash, no hang, no growth; the seed is in the failure."""
    seed = time.time_ns()
    rng = Random(seed)
    with attacked(tmp_path) as found:
        began_s = time.monotonic()
        count, kilobytes = 0, 0
        while (elapsed_s := time.monotonic() - began_s) < 600:
            try:
                found.by(rng)
            except BaseException as error:
                raise AssertionError(f"seed {seed}, attack {count}") from error
            count += 1
            if not kilobytes and elapsed_s > 60:
                kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes
        assert found.serves()
        assert grown < 64 * 1024, f"{grown} kB more after {count} attacks, seed {seed}"
        print(f"{count} attacks, {grown} kB more since the first minute")

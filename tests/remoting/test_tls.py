# SPDX-License-Identifier: Apache-2.0
"""TLS on the remoting port: the session on its own, then over sockets on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from dev.support.certificates import Authority
from dev.support.loops import eventually
from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.server.channel import Connection
from remoting.server.settings import RemotingSettings
from remoting.server.tls import TlsSession
from remoting.server.tls_channel import ListenerTls
from schemas.tls import TlsMode
from tests.remoting.shell import ECHO, LOOPS, Handler, connected, run, serving

both_loops = pytest.mark.parametrize("loop", LOOPS)

BIG = 1_500_000


def enforcing(context: ssl.SSLContext) -> ListenerTls:
    return ListenerTls(context, TlsMode.ENFORCING)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def server_context(authority: Authority, verify: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    pair = authority.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.load_verify_locations(authority.path)
    context.verify_mode = verify
    return context


@pytest.fixture(scope="module")
def source(authority: Authority) -> ListenerTls:
    return enforcing(server_context(authority))


def echo(text: str, opaque: int = 1) -> RemotingCommand:
    return RemotingCommand(code=ECHO, opaque=opaque, body=text.encode())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@both_loops
def test_requests_are_answered(loop: str, authority: Authority, source: ListenerTls, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        client = authority.client()
        client.minimum_version = client.maximum_version = version
        handler = Handler({"orders": b"route"})
        async with serving(handler, tls=source) as server, connected(server, tls=client) as peer:
            assert (await peer.ask(echo("hello"))).body == b"hello"
            asked = RemotingCommand(code=105, opaque=7, ext_fields={"topic": "orders"})
            peer.send(asked, asked)
            assert [(await peer.receive()).body for _ in range(2)] == [b"route"] * 2
            assert (await peer.ask(echo("x" * BIG))).body == b"x" * BIG
            connection = handler.connected[0]
            assert connection.is_tls and connection.certificate_names == ()
        assert server.refusals.counts == {}

    run(main, loop)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@both_loops
def test_plain_connections(loop: str, source: ListenerTls, mode: TlsMode) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, tls=ListenerTls(source.context, mode)) as server, connected(server) as peer:
            if mode is TlsMode.PERMISSIVE:
                assert (await peer.ask(echo("hello"))).body == b"hello"
                assert not handler.connected[0].is_tls
            else:
                peer.send(echo("hello"))
                assert await peer.rest() == b""
                assert server.refusals.counts == {"not-encrypted": 1}
                assert handler.handled == []

    run(main, loop)


@both_loops
def test_tls_where_there_is_none_is_closed(loop: str, authority: Authority) -> None:
    async def main() -> None:
        async with serving(Handler()) as server:
            with pytest.raises(OSError):
                async with connected(server, tls=authority.client()):
                    pass
            assert server.refusals.counts == {"protocol-error": 1}

    run(main, loop)


@pytest.mark.parametrize(
    "preamble",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 9876\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\xc8\x22\x26\x94",
    ],
)
@both_loops
def test_a_proxy_preamble_before_tls(loop: str, authority: Authority, source: ListenerTls, preamble: bytes) -> None:
    async def main() -> None:
        async with (
            serving(Handler(), tls=source) as server,
            InMemory.connect(server.port, authority.client(), preamble),
        ):
            assert server.refusals.counts == {}

    run(main, loop)


@both_loops
def test_names_of_a_verified_certificate(loop: str, authority: Authority) -> None:
    async def main() -> None:
        pair = authority.issue(
            "client",
            subject="CN=broker-a,OU=mq,O=Acme\\, Inc.,C=DE",
            names=(
                x509.UniformResourceIdentifier("spiffe://acme/broker-a"),
                x509.RFC822Name("ops@acme.example"),
            ),
        )
        handler = Handler()
        source = enforcing(server_context(authority, ssl.CERT_REQUIRED))
        async with serving(handler, tls=source) as server, connected(server, tls=authority.client(pair)) as peer:
            assert (await peer.ask(echo("hello"))).body == b"hello"
            assert handler.connected[0].certificate_names == (
                "subject:CN=broker-a,OU=mq,O=Acme\\, Inc.,C=DE",
                "dns:localhost",
                "uri:spiffe://acme/broker-a",
                "email:ops@acme.example",
            )

    run(main, loop)


@pytest.mark.parametrize("which", ["none", "of another authority"])
@both_loops
def test_a_certificate_that_is_required(loop: str, authority: Authority, tmp_path: Path, which: str) -> None:
    async def main() -> None:
        client = authority.client()
        if which != "none":
            pair = Authority(tmp_path, "other").issue("client")
            client.load_cert_chain(pair.cert, pair.key)
        handler = Handler()
        async with serving(handler, tls=enforcing(server_context(authority, ssl.CERT_REQUIRED))) as server:
            with contextlib.suppress(OSError):  # by TLS 1.3 the client learns of it after its side of the handshake
                async with connected(server, tls=client) as peer:
                    peer.send(echo("hello"))
                    assert await peer.rest() == b""
            assert server.refusals.counts == {"tls-handshake": 1}
            assert handler.handled == []

    run(main, loop)


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"PROXY TCP4 "])
@both_loops
def test_a_handshake_that_starves(
    loop: str, source: ListenerTls, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoting.server.server.HANDSHAKE_S", 0.05)

    async def main() -> None:
        settings = RemotingSettings(idle_timeout_s=0.05 if not first else 60.0)
        async with serving(Handler(), settings, source) as server, connected(server) as peer:
            peer.writer.write(first)
            assert await peer.rest() == b""
            assert server.refusals.counts == ({"tls-deadline": 1} if first else {})

    run(main, loop)


@both_loops
def test_close_notify(loop: str, authority: Authority, source: ListenerTls) -> None:
    """Either side says that it ends: the peer sees a clean end, and the server closes when the peer says so."""

    async def main() -> None:
        handler = Handler()
        async with serving(handler, tls=source) as server:
            async with InMemory.connect(server.port, authority.client()) as peer:
                handler.connected[0].close("enough")
                while not peer.has_ended:
                    peer.receive(await peer.read())
            async with InMemory.connect(server.port, authority.client()) as peer:
                peer.end()
                while not peer.has_ended:
                    peer.receive(await peer.read())
            assert handler.reasons[0] == "enough"

    run(main, loop)


@both_loops
def test_bad_records_end_the_connection(loop: str, authority: Authority, source: ListenerTls) -> None:
    async def main() -> None:
        handler = Handler()
        async with serving(handler, tls=source) as server:
            for garbage in (b"\x17\x03\x03\x00\x20" + b"x" * 32, b"HELO" * 8, b"\x16\x03\x03\xff\xff" + b"x" * 100):
                async with InMemory.connect(server.port, authority.client()) as peer:
                    peer.writer.write(garbage)
                    with contextlib.suppress(ConnectionResetError):
                        while await peer.reader.read(65536):
                            pass
            assert server.refusals.counts == {"tls-record": 3}
            async with connected(server) as plain:
                plain.writer.write(b"\x16\x03\x01\x00\x05hello")
                await plain.rest()
            assert server.refusals.counts["tls-handshake"] == 1

    run(main, loop)


def test_a_bad_record_in_one_piece_with_the_end_of_the_handshake(authority: Authority, source: ListenerTls) -> None:
    session, peer = TlsSession(source.context), InMemory(authority.client())
    session.receive(peer.hello())
    finished = peer.receive(session.to_send())
    assert peer.is_open
    session.receive(finished + b"\x17\x03\x03\x00\x20" + b"x" * 32)
    assert session.is_open
    assert session.error is not None
    assert session.certificate_names == ()


@both_loops
def test_answers_that_nobody_reads_are_bounded(loop: str, authority: Authority, source: ListenerTls) -> None:
    """As without TLS: one piece beyond the mark is encrypted; what is shared is not held again."""

    async def main() -> None:
        body = b"x" * 8_000_000
        handler = Handler({"big": body})
        settings = RemotingSettings(write_high_bytes=64 * 1024)
        async with serving(handler, settings, source) as server, connected(server, 65536, authority.client()) as peer:
            peer.stop_reading()
            for opaque in range(20):
                peer.send(RemotingCommand(code=105, opaque=opaque, ext_fields={"topic": "big"}))
            connection = await until_paused(handler)
            transport = connection._transport
            assert transport is not None and connection._tls is not None
            encrypted = transport.get_write_buffer_size() - connection._tls.waiting_bytes
            assert encrypted < 64 * 1024 + 70 * 1024
            assert connection._tls.waiting_bytes <= len(body) + 1000
            peer.read_on()
            for opaque in range(20):
                answer = await peer.receive()
                assert (answer.opaque, len(answer.body)) == (opaque, len(body))

    run(main, loop)


@both_loops
def test_a_certificate_is_swapped_under_open_connections(loop: str, authority: Authority, tmp_path: Path) -> None:
    async def main() -> None:
        other = Authority(tmp_path, "next")
        changing = enforcing(server_context(authority))
        async with serving(Handler(), tls=changing) as server, connected(server, tls=authority.client()) as old:
            assert (await old.ask(echo("before"))).body == b"before"
            changing.context = server_context(other)
            async with connected(server, tls=other.client()) as new:
                assert (await new.ask(echo("new"))).body == b"new"
            assert (await old.ask(echo("after"))).body == b"after"

    run(main, loop)


@given(data=st.data())
def test_any_cut_of_the_bytes(authority: Authority, source: ListenerTls, data: st.DataObject) -> None:
    """Without sockets: what the client wrote comes out, however its records are cut."""
    client, session = InMemory(authority.client()), TlsSession(source.context)
    wrote = data.draw(st.binary(max_size=70_000))
    flow, got = client.hello(), b""
    while True:
        cut = data.draw(st.integers(1, max(1, len(flow))))
        part, flow = flow[:cut], flow[cut:]
        got += session.receive(part)
        assert session.error is None
        was_open = client.is_open
        flow += client.receive(session.to_send())
        if client.is_open and not was_open and wrote:
            flow += client.encrypt(wrote)
        if not flow:
            break
    assert got == wrote
    client.receive(session.encrypt(wrote) if wrote else b"")
    assert client.got == wrote


@given(at=st.integers(0, 3000), byte=st.integers(1, 255), junk=st.binary(max_size=400))
def test_any_change_of_the_bytes(authority: Authority, source: ListenerTls, at: int, byte: int, junk: bytes) -> None:
    """Never anything but an error or silence; nothing that the client did not write comes out."""
    client, session = InMemory(authority.client()), TlsSession(source.context)
    flow = bytearray(client.hello())
    sent = 0
    wrote, got = b"hello" * 100, b""
    while flow and session.error is None:
        if sent <= at < sent + len(flow):
            flow[at - sent] ^= byte
            flow += junk
        sent += len(flow)
        got += session.receive(bytes(flow))
        try:
            was_open = client.is_open
            flow = bytearray(client.receive(session.to_send()))
            if client.is_open and not was_open:
                flow += client.encrypt(wrote)
        except ssl.SSLError:
            break
    assert wrote.startswith(got)
    assert session.error is None or str(session.error).startswith("TLS: ")
    assert session.receive(b"more") == b"" or session.error is None
    session.close()


@given(junk=st.binary(min_size=1, max_size=2000))
def test_noise_that_begins_like_tls(source: ListenerTls, junk: bytes) -> None:
    session = TlsSession(source.context)
    assert session.receive(b"\x16" + junk) == b""
    assert not session.is_open


class InMemory:
    """The client's end of TLS, of which a test sees every byte."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.is_open = self.has_ended = False
        self.got = b""
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, port: int, context: ssl.SSLContext, preamble: bytes = b"") -> AsyncIterator[InMemory]:
        """Through the handshake and a first answer; `preamble` comes byte by byte, and the first bytes of TLS too."""
        peer = cls(context)
        peer.reader, peer.writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            first = preamble + peer.hello()
            for at in range(len(preamble) + 3 if preamble else 0):
                peer.writer.write(first[at : at + 1])
                await asyncio.sleep(0)
            peer.writer.write(first[len(preamble) + 3 :] if preamble else first)
            while not peer.is_open:
                peer.writer.write(peer.receive(await peer.read()))
            peer.writer.write(peer.encrypt(encode_frame(echo("ready"))))
            while not peer.got:
                peer.receive(await peer.read())
            yield peer
        finally:
            peer.writer.close()
            with contextlib.suppress(OSError):
                await peer.writer.wait_closed()

    async def read(self) -> bytes:
        data = await self.reader.read(65536)
        assert data, "closed without close_notify"
        return data

    def hello(self) -> bytes:
        return self.receive(b"")

    def receive(self, data: bytes) -> bytes:
        self._in.write(data)
        try:
            if not self.is_open:
                self._object.do_handshake()
                self.is_open = True
            while True:
                piece = self._object.read(65536)
                if not piece:
                    self.has_ended = True
                    break
                self.got += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        return self._out.read()

    def encrypt(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self._out.read()

    def end(self) -> None:
        """Say that nothing more comes."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()
        self.writer.write(self._out.read())


async def until_paused(handler: Handler) -> Connection:
    while True:
        for connection in handler.connected:
            if not connection._writing:
                return connection
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("has_tls", [False, True])
def test_grpc_clients_are_told_where_they_belong(source: ListenerTls, *, has_tls: bool) -> None:
    """By the preface of HTTP/2, and by a TLS ClientHello that offers it."""

    async def main() -> None:
        handler = Handler()
        async with serving(handler, tls=ListenerTls(source.context, TlsMode.PERMISSIVE) if has_tls else None) as server:
            async with connected(server) as client:
                client.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                answer = await client.rest()
            assert answer.startswith(b"\0\0\0\x04") and b"RocketMQ Proxy" in answer
            async with connected(server) as client:
                client.writer.write(client_hello("h2"))
                assert await client.rest() == bytes((21, 3, 1, 0, 2, 2, 120))
            await eventually(lambda: len(handler.closed) == 2)
            assert all("this port has no gRPC. Use RocketMQ Proxy" in reason for reason in handler.reasons), (
                handler.reasons
            )

    run(main)


def client_hello(*protocols: str) -> bytes:
    context = ssl.create_default_context()
    context.set_alpn_protocols(list(protocols))
    sent = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="ns")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return sent.read()

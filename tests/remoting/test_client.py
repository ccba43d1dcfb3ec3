# SPDX-License-Identifier: Apache-2.0
"""The asking side: answers find their requests, and every way of not answering has its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dev.peers.java import free_port
from remoting.client import RemotingClient
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import response
from remoting.errors import AnswerError, AnswerTimeoutError, ConnectError, ConnectionLostError
from remoting.server.channel import Connection
from remoting.server.server import RemotingServer
from schemas.codes import LanguageCode, RequestCode

ECHO, LATE, CLOSE, ASK_BACK, REFUSE = 1, 2, 3, 4, 5


class Peer:
    """A server with a request code for each behaviour."""

    def __init__(self) -> None:
        self.server = RemotingServer(self)
        self.late = asyncio.Event()
        self.oneway = asyncio.Event()

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        if command.is_oneway:
            self.oneway.set()
            return None
        if command.code == LATE:
            await self.late.wait()
        if command.code == CLOSE:
            connection.abort("told to")
        if command.code == ASK_BACK:
            connection.send(RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, {"minBrokerId": "1"}))
        if command.code == REFUSE:
            return response(17, "no such thing")
        return response(body=command.body, ext_fields={"language": str(command.language)})

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None: ...


def with_peer(work: Callable[[Peer, str], Awaitable[None]]) -> None:
    async def run() -> None:
        peer = Peer()
        await peer.server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(work(peer, f"127.0.0.1:{peer.server.port}"), 60)
        finally:
            peer.late.set()
            await peer.server.close(1)

    asyncio.run(run())


def is_connected(client: RemotingClient, address: str) -> bool:
    task = client._links.get(address)
    return task is not None and task.done() and not task.result().closed.is_set()


def test_answers_find_their_requests() -> None:
    async def work(peer: Peer, address: str) -> None:
        async with RemotingClient() as client:
            late = asyncio.create_task(client.call(address, RemotingCommand(LATE, body=b"late")))
            bodies = [b"%d" % number for number in range(50)]
            answers = await asyncio.gather(*(client.call(address, RemotingCommand(ECHO, body=body)) for body in bodies))
            assert [answer.body for answer in answers] == bodies
            assert not late.done()
            peer.late.set()
            assert (await late).body == b"late"
            assert peer.server.accepted == 1
            assert answers[0].ext("language") == str(LanguageCode.PYTHON)
            assert is_connected(client, address)

    with_peer(work)


def test_every_failure_has_its_name() -> None:
    async def work(peer: Peer, address: str) -> None:
        nobody = f"127.0.0.1:{free_port()}"
        async with RemotingClient() as client:
            with pytest.raises(ConnectError, match=f"{nobody}: no connection"):
                await client.call(nobody, RemotingCommand(ECHO))
            with pytest.raises(AnswerTimeoutError, match="no answer to request 2 within 0.05 s"):
                await client.call(address, RemotingCommand(LATE), timeout_s=0.05)
            with pytest.raises(AnswerError, match="CODE: 17  DESC: no such thing") as refused:
                await client.call(address, RemotingCommand(REFUSE))
            assert refused.value.code == 17
            with pytest.raises(ConnectionLostError):
                await client.call(address, RemotingCommand(CLOSE))
            assert not is_connected(client, address)
            assert (await client.call(address, RemotingCommand(ECHO, body=b"again"))).body == b"again"

    with_peer(work)


def test_a_peer_that_asks_and_one_that_is_not_answered() -> None:
    async def work(peer: Peer, address: str) -> None:
        asked: list[tuple[str, RemotingCommand]] = []
        async with RemotingClient(on_request=lambda *request: asked.append(request)) as client:
            await client.call(address, RemotingCommand(ASK_BACK))
            assert [(where, request.code, request.ext("minBrokerId")) for where, request in asked] == [
                (address, 905, "1")
            ]
            await client.send_oneway(address, RemotingCommand(ECHO))
            await peer.oneway.wait()

    with_peer(work)


def test_closing_ends_what_is_waiting() -> None:
    async def work(peer: Peer, address: str) -> None:
        client = RemotingClient()
        await client.call(address, RemotingCommand(ECHO))
        waiting = asyncio.create_task(client.call(address, RemotingCommand(LATE)))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionLostError):
            await waiting

    with_peer(work)


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_closing_ends_what_waits_for_a_connection(turns: int) -> None:
    """However far the connection has come; who gives up by himself is cancelled as ever."""

    async def work(peer: Peer, address: str) -> None:
        client = RemotingClient()
        waiting = [asyncio.create_task(client.call(address, RemotingCommand(LATE))) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting[0].cancel()
        await client.close()
        first, *others = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert {type(other) for other in others} == {ConnectionLostError}

    with_peer(work)

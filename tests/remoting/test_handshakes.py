# SPDX-License-Identifier: Apache-2.0
"""TLS handshakes take turns, address after address. A client that has begun too many is refused and closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType

import pytest

from dev.support.certificates import Authority
from remoting.codec.frame import RemotingCommand
from remoting.server.tls import Handshakes
from remoting.server.tls_channel import TlsSniffer
from security.admission.quotas import GatewayQuotas
from security.quotas import Quotas, Rate
from tests.remoting.shell import ECHO, Handler, connected, run, serving
from tests.remoting.test_tls import enforcing, server_context


def test_one_in_a_turn_and_no_address_waits_for_the_queue_of_another() -> None:
    async def main() -> None:
        handshakes, begun = Handshakes(), list[str]()
        for number in range(100):
            handshakes.wait("10.0.0.9", partial(begun.append, f"hostile-{number}"))
        handshakes.wait("10.0.0.1", partial(begun.append, "honest"))
        assert begun == []
        await asyncio.sleep(0)
        assert begun == ["hostile-0"]
        handshakes.wait("10.0.0.2", partial(begun.append, "late"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert begun == ["hostile-0", "honest", "hostile-1", "late"]
        while len(begun) < 102:
            await asyncio.sleep(0)
        assert begun[4:] == [f"hostile-{number}" for number in range(2, 100)]

    run(main)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_too_many_handshakes_of_one_address_are_closed_before_signing(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    source = enforcing(server_context(authority))
    now_s = 0.0
    quotas = GatewayQuotas(Quotas(tls_handshakes_per_s=Rate(1, 2)), clock=lambda: now_s)

    async def main() -> None:
        nonlocal now_s
        async with serving(Handler(), tls=source, handshakes=Handshakes(quotas.handshake)) as server:

            async def is_answered() -> bool:
                try:
                    async with connected(server, tls=authority.client()) as peer:
                        return (await peer.ask(RemotingCommand(code=ECHO, opaque=1, body=b"x"))).body == b"x"
                except (OSError, asyncio.IncompleteReadError):
                    return False

            assert [await is_answered() for _ in range(3)] == [True, True, False]
            assert server.refusals.counts == {"quota-tls-handshakes": 1}
            assert quotas.refused == {"tls-handshakes-per-s": 1}
            assert quotas.handshake("10.0.0.2") is None, "another address"
            now_s = 1.0
            assert await is_answered()

    run(main, loop)


def test_bytes_that_come_before_its_turn_are_kept(tmp_path: Path) -> None:
    """The first message in two pieces, the second of which is there before it is its turn."""
    authority = Authority(tmp_path)

    async def main() -> None:
        queue = Queue()
        async with serving(Handler(), tls=enforcing(server_context(authority)), handshakes=queue) as server:
            asking = asyncio.create_task(ask(server, authority))
            while not queue.held:
                await asyncio.sleep(0)
            begin = queue.held[0]
            assert isinstance(begin, MethodType)
            gate = begin.__self__
            assert isinstance(gate, TlsSniffer)
            whole = gate._first
            gate._first = whole[:7]
            gate.data_received(whole[7:])
            begin()
            assert await asking == b"x"

    run(main)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_peer_that_sends_more_than_a_first_message_is_closed_at_once(loop: str, tmp_path: Path) -> None:
    source = enforcing(server_context(Authority(tmp_path)))

    async def main() -> None:
        async with serving(Handler(), tls=source) as server, connected(server) as peer:
            peer.writer.write(b"\x16\x03\x01\x40\x00" + b"x" * 200_000)
            with contextlib.suppress(ConnectionError):  # what was not read is answered with a reset
                await peer.rest()
            assert server.refusals.counts == {"tls-handshake": 1}

    run(main, loop)


class Queue(Handshakes):
    """Has everybody wait."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] = []

    def wait(self, address: str, begin: Callable[[], None]) -> None:
        assert address == "127.0.0.1"
        self.held.append(begin)


async def ask(server: object, authority: Authority) -> bytes:
    async with connected(server, tls=authority.client()) as peer:  # type: ignore[arg-type]
        return (await peer.ask(RemotingCommand(code=ECHO, opaque=1, body=b"x"))).body

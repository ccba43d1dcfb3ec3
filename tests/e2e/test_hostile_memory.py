# SPDX-License-Identifier: Apache-2.0
"""What a hostile peer makes of a gateway's memory with the defaults: as many names, and as many rows, as it may at once."""

from __future__ import annotations

import itertools
import json
import random
import socket
import string
import time
from collections.abc import Callable, Iterator

import pytest

from dev.model import codes
from dev.model.client import decode_frame
from dev.peers.routelake import Routelake
from tests.e2e.hostile import GROWTH_BYTES, Memory, over_quotas, read_answer, registration

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]

IN_VAIN = 5
"""Registrations in a row that are refused: then it has what it may have."""
AT_MOST_S = 120.0


def body(names: list[str], rng: random.Random) -> bytes:
    table = {
        name: {
            "topicName": name,
            "readQueueNums": rng.randint(1, 64),
            "writeQueueNums": rng.randint(1, 64),
            "perm": rng.choice((2, 4, 6)),
            "topicSysFlag": 0,
        }
        for name in names
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    return json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()


def names(rng: random.Random, count: int, length: int) -> list[str]:
    """Such as nothing compresses."""
    return ["".join(rng.choices(string.ascii_letters + string.digits, k=length)) for _ in range(count)]


def many_names(rng: random.Random) -> Iterator[bytes]:
    """As long as RocketMQ's producers take."""
    while True:
        yield body(names(rng, 1_000, 127), rng)


def many_rows(rng: random.Random) -> Iterator[bytes]:
    """Short ones, that all of its brokers have."""
    same = names(rng, 3_000, 6)
    return itertools.cycle([body(same, rng) for _ in range(10)])


@pytest.mark.parametrize("bodies", [many_names, many_rows])
def test_memory_with_the_defaults(folding: Routelake, bodies: Callable[[random.Random], Iterator[bytes]]) -> None:
    taken = refused = in_vain = 0
    began_s = time.monotonic()
    with (
        Memory(folding) as memory,
        socket.create_connection(("127.0.0.1", folding.remoting_port), 60) as connection,
    ):
        for number, found in enumerate(bodies(random.Random(7))):
            addr = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1"
            connection.sendall(registration(f"b-{number}", addr, 1, 0, body=found))
            if decode_frame(read_answer(connection)[4:]).header["code"] == codes.SUCCESS:
                taken, in_vain = taken + 1, 0
            else:
                refused, in_vain = refused + 1, in_vain + 1
            if in_vain == IN_VAIN or time.monotonic() - began_s > AT_MOST_S:
                break
    grown = memory.most - memory.before
    print(
        f"{taken} registrations, {refused} refused for {over_quotas(folding)} in "
        f"{time.monotonic() - began_s:.0f} s: {memory.before / 1e6:.0f} MB and {grown / 1e6:.0f} MB more"
    )
    assert grown < GROWTH_BYTES

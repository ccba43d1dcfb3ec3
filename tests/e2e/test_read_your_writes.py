# SPDX-License-Identifier: Apache-2.0
"""Acknowledged means visible, whatever else the machine does.

While other processes burn the processor, the next read of the same gateway shows each write. So does any other gateway
that gets the offset of the write.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.routelake import Routelake

WRITES = 200


@contextmanager
def burning(count: int) -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[tuple[Routelake, Routelake]]:
    """Two over one log and one lake."""
    with ExitStack() as stack:
        both = tuple(Routelake(tmp_path / "data", "gateway", ("--gateway-id", name)) for name in ("one", "two"))
        for gateway in both:
            stack.callback(gateway.kill)
            gateway.start(wait_ready_s=None)
        for gateway in both:
            gateway.wait_listening(120)
        yield both[0], both[1]
        for gateway in both:
            gateway.stop()


def put_over_http(gateway: Routelake, key: str, value: str) -> int:
    return int(gateway.send("PUT", f"/v1/kv/n/{key}", {"value": value}, 60)["offset"])


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("burners", [3, 8])
def test_no_answer_lacks_an_acknowledged_write(gateways: tuple[Routelake, Routelake], burners: int) -> None:
    one, two = gateways
    lacking: list[str] = []
    with burning(burners), RemotingClient("127.0.0.1", one.remoting_port) as client:
        for number in range(WRITES):
            fields = {"namespace": "n", "key": f"k{number % 5}", "value": str(number)}
            put = client.call(Request(codes.PUT_KV_CONFIG, fields), 60)
            assert put.code == 0, put
            got = client.call(Request(codes.GET_KV_CONFIG, {"namespace": "n", "key": fields["key"]}), 60)
            if (got.ext or {}).get("value") != str(number):
                lacking.append(f"remoting, write {number}: {got}")
            offset = put_over_http(one, "h", str(number))
            for gateway, query in ((one, ""), (two, f"?wait_for={offset}&wait_timeout=30000")):
                if (shown := gateway.get(f"/v1/kv/n/h{query}")["value"]) != str(number):
                    lacking.append(f"HTTP, write {number} at {offset}: {shown} at {gateway.http_port}")
    assert lacking == []

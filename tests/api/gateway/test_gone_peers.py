# SPDX-License-Identifier: Apache-2.0
"""A client that disconnects before its connection is accepted has no address: its requests must not be carried out.

It could get no answer, its events would name no client, and the gateway could not decide whether it is on this machine.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.model import codes
from dev.model.client import encode_frame
from dev.model.wire import Request
from dev.support.local import LocalGateway, LocalLake
from schemas.events import decode

_COUNT = 20


@contextmanager
def nobody_is_taken(gateway: LocalGateway) -> Iterator[None]:
    """The gateway's loop stands still: who connects meanwhile waits in the backlog."""
    go_on, stands = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait()

    gateway.loop.call(stand)
    stands.wait()
    try:
        yield
    finally:
        go_on.set()


def send_and_reset(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(data)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def put(key: str) -> bytes:
    body = json.dumps({"value": "v"}).encode()
    head = f"PUT /v1/kv/n/{key} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_requests_of_disconnected_peers_are_not_executed(tmp_path: Path) -> None:
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway(http_port=0) as gateway:
        with nobody_is_taken(gateway):
            for number in range(_COUNT):
                send_and_reset(gateway.http_port, put(f"http-{number}"))
                fields = {"namespace": "n", "key": f"remoting-{number}", "value": "v"}
                send_and_reset(gateway.port, encode_frame(codes.PUT_KV_CONFIG, fields))
        with gateway.connect() as client:
            for number in range(_COUNT):
                fields = {"namespace": "n", "key": f"here-{number}", "value": "v"}
                assert client.call(Request(codes.PUT_KV_CONFIG, fields)).code == codes.SUCCESS
        events = [decode(record.payload) for record in lake.log.read(0)]
        written = [event for event in events if event.actor.via != "routelake"]
        assert len(written) >= _COUNT
        assert [event for event in written if not event.actor.peer] == []
        assert gateway.parts.metrics.connections.labels("http")._value.get() == 0

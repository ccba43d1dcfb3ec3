# SPDX-License-Identifier: Apache-2.0
"""Connections of one address to the HTTP port."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from dev.support.local import LocalLake
from dev.support.loops import until
from security.quotas import Quotas

GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def ask(connection: socket.socket) -> bytes:
    connection.sendall(GET)
    return connection.recv(65_536)


def test_one_more_than_an_address_may_have_is_told_so(tmp_path: Path) -> None:
    limits = Quotas(http_connections=2)
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway(quotas=limits, http_port=0) as gateway:
        here = ("127.0.0.1", gateway.http_port)

        def connect(source: str = "") -> socket.socket:
            return socket.create_connection(here, 30, (source, 0) if source else None)

        with connect() as one, connect() as two:
            assert ask(one).startswith(b"HTTP/1.1 200")
            assert ask(two).startswith(b"HTTP/1.1 200")
            with connect() as three:
                head, _, body = three.recv(65_536).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
                assert b"retry-after: " in head
                assert "--quota http-connections=" in json.loads(body)["detail"]
                assert three.recv(100) == b""
            with connect("127.0.0.2") as stranger:
                assert ask(stranger).startswith(b"HTTP/1.1 200")
            text = gateway.parts.metrics.text().decode()
            assert 'routelake_quota_refused_total{quota="http-connections"} 1.0' in text
            assert 'rocketmq_namesrv_security_events_total{reason="http-quota-connections"} 1.0' in text

        def is_let_in() -> bool:
            with connect() as connection:
                return ask(connection).startswith(b"HTTP/1.1 200")

        until(is_let_in)  # once the gateway has seen the others close

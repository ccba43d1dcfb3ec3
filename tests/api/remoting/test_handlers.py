# SPDX-License-Identifier: Apache-2.0
"""What the handler keeps of connections."""

from __future__ import annotations

from pathlib import Path

from dev.model import codes
from dev.support.local import LocalLake
from dev.support.loops import until
from tests.examples.parts import ADDR1, A, register, unregister


def test_a_broker_is_bound_as_long_as_a_connection_has_it(tmp_path: Path) -> None:
    """Receivers of a smallest brokerId: found without a search through all connections."""
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway() as gateway:
        handler = gateway.parts.handler
        one, other = gateway.connect(), gateway.connect()
        for client in (one, one, other):
            assert client.call(register(A, ADDR1).request()).code == codes.SUCCESS
        assert handler._is_bound(A, ADDR1)
        assert not handler._is_bound(A, "10.9.9.9:1")
        other.close()
        until(lambda: handler._bindings[A, ADDR1] == 1)
        for _ in range(2):
            assert one.call(unregister(A, ADDR1).request()).code == codes.SUCCESS
            assert not handler._is_bound(A, ADDR1)
        assert one.call(register(A, ADDR1).request()).code == codes.SUCCESS
        assert handler._is_bound(A, ADDR1)
        one.close()
        until(lambda: not handler._is_bound(A, ADDR1))
        assert not handler._bindings
        assert not handler._bound

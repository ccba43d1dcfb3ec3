# SPDX-License-Identifier: Apache-2.0
"""A part of a gateway that dies in a test ends the test, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.model import codes
from dev.model.client import ConnectionClosed
from dev.model.wire import Request
from dev.support.local import LocalLake


@pytest.fixture(autouse=True)
def _told_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways that other tests of this process keep are not to hear of these deaths."""
    monkeypatch.setattr("runtime.supervised_tasks._listeners", [])


def test_whoever_waits_for_a_part_that_died_learns_why_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalLake(tmp_path) as lake:
        gateway = lake.gateway()
        gateway.start()

        def die(*_: object) -> None:
            raise RuntimeError("of this")

        monkeypatch.setattr(gateway.gateway._writer, "_take", die)
        with gateway.connect() as client, pytest.raises(ConnectionClosed):
            client.call(Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}))
        with pytest.raises(RuntimeError, match="of this"):
            gateway.stop()


def test_what_a_callback_raises_is_told_at_the_end(tmp_path: Path) -> None:
    with LocalLake(tmp_path) as lake:
        gateway = lake.gateway()
        gateway.start()

        def raise_() -> None:
            raise RuntimeError("of this")

        gateway.loop.call(raise_)
        with pytest.raises(RuntimeError, match="of this"):
            gateway.stop()

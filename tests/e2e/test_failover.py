# SPDX-License-Identifier: Apache-2.0
"""A stock cluster fails over behind routelake as it does behind the real NameServer: answers and notifications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.peers.routelake import Routelake
from dev.support.local import LocalLake
from dev.support.rocketmq import StockNameServer
from tests.e2e.failover import NAMESRV_PROPERTIES, A, Played, play
from tests.e2e.scenario import Patience

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(600)]

OURS = Patience(write=15, disconnect=15, expiry=20, registration=60)


@pytest.fixture(scope="module")
def expected() -> Played:
    """What Apache RocketMQ's own NameServer answers and sends."""
    with StockNameServer(NAMESRV_PROPERTIES) as server:
        return play(server.address, Patience())


@contextmanager
def in_this_process(folder: Path) -> Iterator[str]:
    """The gateway, the fold and the lake, without Spark."""
    with (
        LocalLake(folder) as lake,
        lake.gateway(support_acting_master=True, notify_min_broker_id_changed=True) as gateway,
    ):
        yield gateway.address


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`routelake serve` with the NameServer's own configuration."""
    file = folder / "namesrv.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in NAMESRV_PROPERTIES.items()))
    with Routelake(folder / "data", options=("--config", str(file))) as server:
        yield server.namesrv_addr


@pytest.mark.parametrize("routelake", [in_this_process, served])
def test_failover(routelake: object, expected: Played, tmp_path: Path) -> None:
    assert callable(routelake)
    with routelake(tmp_path) as namesrv_addr:
        played = play(namesrv_addr, OURS, notifications=len(expected.notifications))
    for step, answers in expected.answers.items():
        assert played.answers[step] == answers, step
    assert list(played.answers) == list(expected.answers)
    assert played.notifications == expected.notifications
    assert {name for name, _ in expected.notifications} == {f"{A}/1"}, (
        "the slave is told of its master's comings and goings"
    )

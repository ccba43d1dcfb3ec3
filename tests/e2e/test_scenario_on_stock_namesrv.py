# SPDX-License-Identifier: Apache-2.0
"""The scenario proves itself: Apache RocketMQ's own NameServer 5.5.0 passes it."""

from __future__ import annotations

import pytest

from dev.support.rocketmq import StockNameServer
from tests.e2e import scenario

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


@pytest.mark.timeout(600)
def test_stock_namesrv_passes_the_main_scenario() -> None:
    with StockNameServer() as server:
        scenario.run(server.address)

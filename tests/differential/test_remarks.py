# SPDX-License-Identifier: Apache-2.0
"""Remarks on the wire: routelake's are the real NameServer's own, byte for byte, wherever both refuse for one reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.local import local_client
from dev.support.rocketmq import StockNameServer

pytestmark = pytest.mark.jvm

REFUSED = {
    "no such topic": Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}),
    "a topic with odd characters": Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%ü \n"}),
    "no topic": Request(codes.GET_ROUTEINFO_BY_TOPIC, {}),
    "no such key": Request(codes.GET_KV_CONFIG, {"namespace": "ns", "key": "k"}),
    "no such namespace": Request(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": "ns"}),
    "a code nobody knows": Request(31999, {}),
    "a registration with another checksum": Request(
        codes.REGISTER_BROKER,
        {
            **{"clusterName": "c", "brokerName": "b", "brokerAddr": "10.0.0.1:10911", "brokerId": "0"},
            **{"haServerAddr": "10.0.0.1:10912", "bodyCrc32": "1", "compressed": "false"},
        },
        b"{}",
    ),
}


def test_refusals_have_the_remarks_of_the_stock_nameserver(tmp_path: Path) -> None:
    with StockNameServer() as stock, local_client(tmp_path) as ours:
        with RemotingClient(stock.host, stock.port) as client:
            said = {name: (answer.code, answer.remark) for name, r in REFUSED.items() for answer in (client.call(r),)}
        found = {name: (answer.code, answer.remark) for name, r in REFUSED.items() for answer in (ours.call(r),)}
    assert found == said

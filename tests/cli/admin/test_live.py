# SPDX-License-Identifier: Apache-2.0
"""Stock mqadmin and `routelake admin` side by side, live: nothing recorded is believed."""

from __future__ import annotations

import pytest

from dev.peers.java import wait_until
from dev.support.recorder import Recorded, Recorder
from dev.support.rocketmq import StockBroker, StockNameServer, mqadmin
from tests.cli.admin.commands import CASES
from tests.cli.admin.golden_requests import comparable, recorded
from tests.cli.admin.record_golden import belongs_to_command, record
from tests.cli.admin.run import admin

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.xdist_group("admin")]


@pytest.mark.timeout(900)
def test_stock_mqadmin_still_sends_what_was_recorded() -> None:
    golden = recorded()
    for case, requests in record(CASES).items():
        assert comparable(case, [Recorded(**one) for one in requests]) == comparable(case, golden[case]), case


COMMANDS = [
    "updateTopic -c DefaultCluster -t orders -r 6 -w 4",
    "updateTopic -b BROKER -t orders -r 6 -w 4 -o true",
    "updateTopic -c DefaultCluster -t orders -r 6 -w 4 -o true -a +message.type=FIFO",
    "updateTopicPerm -c DefaultCluster -t orders -p 4",
    "updateTopicPerm -b BROKER -t orders -p 4",
    "topicList",
    "topicList -c",
    "topicRoute -t orders",
    "topicClusterList -t orders",
    "topicStatus -t orders",
    "topicStatus -t orders -c DefaultCluster",
    "clusterList",
    "updateOrderConf -t orders -m put -v broker-a:4",
    "updateOrderConf -t orders -m get",
    "updateOrderConf -t orders -m delete",
    "updateKvConfig -s ns -k k -v v",
    "deleteKvConfig -s ns -k k",
    "wipeWritePerm -b broker-a",
    "addWritePerm -b broker-a",
    "getNamesrvConfig",
    "updateNamesrvConfig -k clusterTest -v false",
    "deleteTopic -c DefaultCluster -t orders",
]
"""Both tools in turn. Each command leaves what the next one needs, with either tool."""

DELETES = {
    "updateOrderConf -t orders -m delete": 101,
    "deleteKvConfig -s ns -k k": 101,
    "deleteTopic -c DefaultCluster -t orders": 105,
}
LOOKS = {**DELETES, "updateNamesrvConfig -k clusterTest -v false": 319}
"""Command to the question that routelake's asks first, whether there is anything to change."""


@pytest.mark.timeout(600)
def test_stock_and_routelake_through_the_same_proxies_to_stock_peers() -> None:
    """The broker listens on 127.0.0.1 and registers the proxy's address, 127.0.0.2, at the same port."""
    with StockNameServer() as name_server, Recorder() as recorder:
        properties = {"brokerIP1": "127.0.0.2", "bindAddress": "127.0.0.1"}
        through = recorder.proxy("NameServer", name_server.address)
        stock_broker = StockBroker(name_server.address, properties=properties)
        registered = recorder.proxy("broker-a", stock_broker.address, f"127.0.0.2:{stock_broker.port}")
        with stock_broker:
            wait_until(lambda: "broker-a" in admin("clusterList", "-n", through).out, 30, "registration")
            for line in COMMANDS:
                name, *options = line.replace("BROKER", registered).split(" ")
                recorder.take()
                mqadmin([name, *options], through)
                stock = [one for one in recorder.take() if belongs_to_command(one)]
                assert stock, line
                # what mqadmin has just deleted is not there for the next one, who says so
                assert admin(name, "-n", through, *options).code == (1 if line in DELETES else 0), line
                look, *ours = recorder.take() if line in LOOKS else [None, *recorder.take()]
                assert look is None or look.code == LOOKS[line], line
                assert ours == stock, line

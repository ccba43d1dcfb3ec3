# SPDX-License-Identifier: Apache-2.0
"""A NameServer and any number of brokers of one cluster, on free ports, that answer or fail as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from dev.peers.java import free_port
from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from schemas.rocketmq_json import encode_cluster_info, encode_topic_route
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

CLUSTER = "fleet"
TOPIC = "orders"

PATIENCE_S = 3
"""What tests of silent servers give all of them; those that answer do so within it on any machine."""

Behaviour = Callable[[RemotingCommand], "RemotingCommand | Awaitable[RemotingCommand] | None"]


class Fleet(NamedTuple):
    """Where they are; `brokers` is brokerName to address."""

    name_server: str
    brokers: dict[str, str]


def succeed(request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(0, body=b'{"table":{}}' if request.code == 28 else b"")


def refuse(request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(1, remark="the disk is full")


def say_nothing(request: RemotingCommand) -> None:
    return None


async def answer_after_a_second(request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(1)
    return RemotingCommand(0)


async def answer_too_late(request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(3 * PATIENCE_S)
    return RemotingCommand(0)


def start_fleet(recorder: Recorder, behaviours: Sequence[Behaviour | None]) -> Fleet:
    """Start one broker for each behaviour, None for an address without a listener."""
    brokers = {}
    for at, behaviour in enumerate(behaviours):
        name = f"broker-{at:02}"
        brokers[name] = f"127.0.0.1:{free_port()}" if behaviour is None else recorder.scripted(name, behaviour)
    groups = {
        name: BrokerData(broker_addrs={0: addr}, broker_name=name, cluster=CLUSTER, enable_acting_master=False)
        for name, addr in brokers.items()
    }
    info = encode_cluster_info(ClusterInfo(broker_addr_table=groups, cluster_addr_table={CLUSTER: list(groups)}))
    route = encode_topic_route(
        TopicRouteData(
            broker_datas=list(groups.values()),
            filter_server_table={},
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=4, topic_sys_flag=0, write_queue_nums=4)
                for name in groups
            ],
        ),
        numeric_keys=False,
    )

    def answer(request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body={106: info, 105: route}.get(request.code, b""))

    return Fleet(recorder.scripted("NameServer", answer), brokers)

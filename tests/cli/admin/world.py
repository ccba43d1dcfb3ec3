# SPDX-License-Identifier: Apache-2.0
"""Two NameServers and 38 brokers that answer as stock ones do, at addresses that never change.

The addresses are fixed because stock mqadmin visits brokers in the order of a Java HashSet of their addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from schemas.codes import ResponseCode
from schemas.rocketmq_json import encode_cluster_info, encode_topic_route
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

NAME_SERVERS: Final = {"ns-1": "127.77.0.1:19876", "ns-2": "127.77.0.2:19876"}
FAQ: Final = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
BOTH: Final = ";".join(NAME_SERVERS.values())
ONE: Final = NAME_SERVERS["ns-1"]

MASTERS: Final = {f"broker-{letter}": f"127.77.1.{at}:19911" for at, letter in enumerate("abcde", 1)}
"""Of the cluster east; broker-a has a slave. Of the cluster west there is broker-w, of south a slave without master."""
SLAVE_OF_A: Final = "127.77.2.1:19911"
WEST: Final = "127.77.3.1:19911"
ORPHAN: Final = "127.77.4.1:19911"
LARGE: Final = {f"large-{at:02}": f"127.77.5.{at}:19911" for at in range(1, 31)}
"""Of the cluster large: enough for a HashSet to grow twice."""
BROKERS: Final = {**MASTERS, "broker-a-slave": SLAVE_OF_A, "broker-w": WEST, "broker-s-slave": ORPHAN, **LARGE}


def _group(name: str, cluster: str, addresses: dict[int, str]) -> BrokerData:
    return BrokerData(broker_addrs=addresses, broker_name=name, cluster=cluster, enable_acting_master=False)


GROUPS: Final = {
    **{name: _group(name, "east", {0: address}) for name, address in MASTERS.items()},
    **{name: _group(name, "large", {0: address}) for name, address in LARGE.items()},
    "broker-a": _group("broker-a", "east", {0: MASTERS["broker-a"], 1: SLAVE_OF_A}),
    "broker-w": _group("broker-w", "west", {0: WEST}),
    "broker-s": _group("broker-s", "south", {1: ORPHAN}),
}
CLUSTERS: Final = ClusterInfo(
    broker_addr_table=GROUPS,
    cluster_addr_table={"east": list(MASTERS), "west": ["broker-w"], "south": ["broker-s"], "large": list(LARGE)},
)


def _route(queues: Mapping[str, tuple[int, int, int, int]]) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[GROUPS[name] for name in queues],
        filter_server_table={},
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm, topic_sys_flag=flag)
            for name, (read, write, perm, flag) in queues.items()
        ],
    )


ROUTES: Final = {
    "orders": _route({"broker-c": (6, 4, 6, 1), "broker-a": (8, 8, 4, 0), "broker-b": (8, 8, 6, 0)}),
    "west-only": _route({"broker-w": (4, 4, 6, 0)}),
    "east": _route({"broker-a": (1, 1, 7, 0)}),
    "orphaned": _route({"broker-s": (4, 4, 6, 0)}),
}
TOPICS: Final = [*ROUTES, "%RETRY%readers", "%DLQ%readers", "no-route"]
ORDER_CONF: Final = "broker-c:4;broker-b:2"


def _ok(body: bytes = b"", **ext_fields: str) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, ext_fields or None, body)


def answer_as_name_server(request: RemotingCommand) -> RemotingCommand:
    """What a stock NameServer answers with these brokers registered."""
    topic = request.ext("topic") or ""
    match request.code:
        case 105 if topic in ROUTES:
            return _ok(encode_topic_route(ROUTES[topic], numeric_keys=False))
        case 105:
            remark = f"No topic route info in name server for the topic: {topic}\nSee {FAQ} for further details."
            return RemotingCommand(17, remark=remark)
        case 106:
            return _ok(encode_cluster_info(CLUSTERS))
        case 206:
            return _ok(json.dumps({"topicList": TOPICS}).encode())
        case 101 if request.ext("key") in ("orders", "k"):
            return _ok(value=ORDER_CONF)
        case 101:
            return RemotingCommand(22, {}, remark="No config item, Namespace: ORDER_TOPIC_CONFIG Key: new")
        case 205:
            return _ok(wipeTopicCount="3")
        case 327:
            return _ok(addTopicCount="3")
        case 319:
            return _ok(
                b"listenPort=9876\ndeleteTopicWithBrokerRegistration=false\nclusterTest=false\nkvConfigPath=/root/namesrv/kvConfig.json\n"
            )
        case 100 | 102 | 216 | 318:
            return _ok()
    return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


RUNTIME: Final = {
    "brokerActive": "true",
    "brokerVersionDesc": "V5_5_0",
    "putTps": "1.5 1.4 1.3",
    "getTransferredTps": "2.5 2.4 2.3",
    "sendThreadPoolQueueSize": "0",
    "pullThreadPoolQueueSize": "0",
    "sendThreadPoolQueueHeadWaitTimeMills": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "pageCacheLockTimeMills": "0",
    "earliestMessageTimeStamp": "1700000000000",
    "commitLogDiskRatio": "0.25",
    **{f"msg{way}Total{day}": "7" for way in ("Put", "Get") for day in ("YesterdayMorning", "TodayMorning")},
    "msgPutTotalTodayNow": "9",
    "msgGetTotalTodayNow": "8",
}


def answer_as_broker(name: str, request: RemotingCommand) -> RemotingCommand:
    """What a stock broker answers; the shapes are those a 5.5.0 broker wrote."""
    match request.code:
        case 17 | 18 | 215 | 34 | 35:
            return _ok()
        case 28:
            return _ok(json.dumps({"table": RUNTIME}).encode())
        case 202:
            key = json.dumps({"brokerName": name, "queueId": 0, "topic": request.ext("topic")})
            value = json.dumps({"lastUpdateTimestamp": 0, "maxOffset": 12, "minOffset": 2})
            return _ok(f'{{"offsetTable":{{{key}:{value}}},"topicPutTps":0.0}}'.encode())
        case 300:
            return _ok(json.dumps({"groupList": ["readers", "auditors"]}).encode())
        case 351:
            config = {"topicName": request.ext("topic"), "perm": 6, "readQueueNums": 8, "writeQueueNums": 8}
            return _ok(json.dumps(config).encode())
    return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def start_world(recorder: Recorder) -> None:
    """Start all of them."""
    for name, address in NAME_SERVERS.items():
        recorder.scripted(name, answer_as_name_server, address)
    for name, address in BROKERS.items():
        recorder.scripted(name, lambda request, name=name: answer_as_broker(name, request), address)

# SPDX-License-Identifier: Apache-2.0
"""Commands with requests that are compared: name of the case to options of mqadmin, with -n last.

``{topics}`` stands for the path of `TOPIC_LIST_FILE`.
"""

from __future__ import annotations

import json
from typing import Final

from tests.cli.admin.world import BOTH, MASTERS, ONE, SLAVE_OF_A

A, C = MASTERS["broker-a"], MASTERS["broker-c"]

TOPIC_LIST_FILE: Final = json.dumps(
    [
        {"topicName": "first", "readQueueNums": 4, "writeQueueNums": 2, "perm": 6},
        {
            "topicName": "second",
            "order": True,
            "topicSysFlag": 1,
            "attributes": {"+queue.type": "SimpleCQ", "+message.type": "FIFO", "+reserve.time": "3"},
        },
        {"topicName": "third", "topicFilterType": "MULTI_TAG"},
    ]
)

_COMMANDS: Final = {
    "updateTopic on a broker": f"updateTopic -b {A} -t orders",
    "updateTopic on a cluster": "updateTopic -c east -t orders -r 6 -w 4 -p 4",
    "updateTopic on a large cluster": "updateTopic -c large -t orders",
    "updateTopic with order on a large cluster": "updateTopic -c large -t orders -o true",
    "updateTopic without master": "updateTopic -c south -t orders",
    "updateTopic with flags": f"updateTopic -b {A} -t orders -u true -s true",
    "updateTopic with unit": f"updateTopic -b {A} -t orders -u true -s false -o false",
    "updateTopic with attributes": (
        f"updateTopic -b {A} -t orders -a +message.type=FIFO,+queue.type=SimpleCQ,-cleanup.policy,+reserve.time=3"
    ),
    "updateTopic with order on a broker": f"updateTopic -b {A} -t orders -w 3 -o true",
    "updateTopic with order on a broker, the first": f"updateTopic -b {A} -t new -o true",
    "updateTopic with order on a cluster": "updateTopic -c east -t orders -o true",
    "updateTopicList on a broker": f"updateTopicList -b {A} -f {{topics}}",
    "updateTopicList on a cluster": "updateTopicList -c east -f {topics}",
    "updateTopicPerm on a broker": f"updateTopicPerm -b {A} -t orders -p 6",
    "updateTopicPerm unchanged": f"updateTopicPerm -b {A} -t orders -p 4",
    "updateTopicPerm on a slave": f"updateTopicPerm -b {SLAVE_OF_A} -t orders -p 6",
    "updateTopicPerm on a cluster": "updateTopicPerm -c east -t orders -p 2",
    "deleteTopic": "deleteTopic -c east -t orders",
    "deleteTopic without master": "deleteTopic -c south -t orphaned",
    "topicList": "topicList",
    "topicList with clusters": "topicList -c",
    "topicRoute": "topicRoute -t orders",
    "topicRoute as a list": "topicRoute -t orders -l",
    "topicRoute of no topic": "topicRoute -t nowhere",
    "topicClusterList": "topicClusterList -t orders",
    "topicStatus": "topicStatus -t orders",
    "topicStatus without master": "topicStatus -t orphaned",
    "topicStatus by cluster": "topicStatus -t orders -c east",
    "updateOrderConf put": "updateOrderConf -t orders -m put -v broker-a:4;broker-b:4",
    "updateOrderConf get": "updateOrderConf -t orders -m get",
    "updateOrderConf delete": "updateOrderConf -t orders -m delete",
    "updateKvConfig": "updateKvConfig -s ns -k k -v v/é",
    "deleteKvConfig": "deleteKvConfig -s ns -k k",
    "wipeWritePerm": "wipeWritePerm -b broker-a",
    "addWritePerm": "addWritePerm -b broker-a",
    "clusterList": "clusterList",
    "clusterList with more": "clusterList -m",
    "clusterList of one": "clusterList -c west",
    "getNamesrvConfig": "getNamesrvConfig",
    "updateNamesrvConfig": "updateNamesrvConfig -k deleteTopicWithBrokerRegistration -v true",
    "allocateMQ": "allocateMQ -t orders -i 10.0.0.1,10.0.0.2",
}

EVERY_NAME_SERVER: Final = {
    "updateTopic with order on a broker",
    "updateTopic with order on a broker, the first",
    "updateTopic with order on a cluster",
    "deleteTopic",
    "deleteTopic without master",
    "updateOrderConf put",
    "updateOrderConf delete",
    "updateKvConfig",
    "deleteKvConfig",
    "wipeWritePerm",
    "addWritePerm",
    "getNamesrvConfig",
    "updateNamesrvConfig",
}
"""Run with both NameServers. The others ask one NameServer, and mqadmin picks it at random: they are given only one."""


def command(case: str, topics_file: str) -> list[str]:
    """The arguments of a case, sub-command first."""
    words = _COMMANDS[case].replace("{topics}", topics_file).split(" ")
    return [words[0], "-n", BOTH if case in EVERY_NAME_SERVER else ONE, *words[1:]]


CASES: Final = list(_COMMANDS)

# SPDX-License-Identifier: Apache-2.0
"""The questions of docs/reference/tables.md, a lake to ask them of, and their answers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dev.docs import ROOT
from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import START_MS, Garbage, written

TEXT = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
QUERIES: dict[str, str] = dict(
    re.findall(r"^### (.+?)\n(?:(?!^#)[\s\S])*?```sql\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
)
START = datetime.fromtimestamp(START_MS / 1000, UTC)

Rows = list[tuple[Any, ...]]


def after(seconds: float) -> datetime:
    """Event time in the lake below."""
    return START + timedelta(seconds=seconds)


def write(lake_dir: Path) -> None:
    """The page's queries ask about 22:14 UTC, which is 40 seconds after the start of this."""
    both, fewer = (
        make.topics("orders", "audit"),
        make.topics("orders", "audit", row=make.ROW._replace(write_queue_nums=4)),
    )
    events = [
        (1, make.register(table=both)),
        (1, make.register("x:1", name="x", table=both, heartbeat_timeout_millis=59_999)),
        (1, make.put("n", "k")),
        (40, make.register(table=fewer, version=make.V2)),  # 43 s: past 22:14
        (1, make.wipe()),
        (6, make.heartbeat()),
        (20, make.clock()),  # 70 s: x has expired, at 62
        (1, make.delete_topic("orders")),
        (4_000, make.resume()),
        (1, make.register("x:1", name="x", table=make.topics("orders", "new"), version=make.V2)),
        (1, make.unregister("x:1", name="x")),
        (1, Garbage("b:", b"no event")),
    ]
    drive(lake_dir, [[record] for record in written([(after_s * 1000, event) for after_s, event in events])])


ORDERS = '{"readQueueNums":8,"writeQueueNums":8,"perm":6,"topicSysFlag":0}'
X = '{"cluster":"c","brokerAddrs":{"0":"x:1"},"zoneName":null,"enableActingMaster":false}'
EXPECTED: dict[str, Rows] = {
    "What was the route of a topic at a time?": [("b", "8", "8", "6"), ("x", "8", "8", "6")],
    "Which epoch, and which versions, belong to a time?": [(3, 2)],
    "What changed between two times?": [
        (after(43), "REGISTER_BROKER", "b", "brokerLiveTable", 1, None),
        (after(43), "REGISTER_BROKER", "b", "topicQueueTable", 2, "audit"),
        (after(44), "WIPE_WRITE_PERM_OF_BROKER", "b", "topicQueueTable", 2, "audit"),
        (after(62), "BROKER_EXPIRED", "x", "brokerAddrTable", 1, None),
        (after(62), "BROKER_EXPIRED", "x", "brokerLiveTable", 1, None),
        (after(62), "BROKER_EXPIRED", "x", "clusterAddrTable", 1, None),
        (after(62), "BROKER_EXPIRED", "x", "topicQueueTable", 2, "audit"),
        (after(71), "DELETE_TOPIC_IN_NAMESRV", "b", "topicQueueTable", 1, "orders"),
    ],
    "Who deleted a topic?": [(after(71), "remoting", "10.9.9.9:1234")],
    "What did one address do?": [
        (after(3), "PUT_KV_CONFIG", None, None, "applied"),
        (after(44), "WIPE_WRITE_PERM_OF_BROKER", "b", None, "applied"),
        (after(71), "DELETE_TOPIC_IN_NAMESRV", None, "orders", "applied"),
        (after(4071), "RESUME", None, None, "applied"),
        (after(4073), "UNREGISTER_BROKER", "x", None, "applied"),
    ],
    "Which topics have no queue to write to, and since when?": [("audit", after(62))],
    "Which brokers come and go?": [
        ("x", "x:1", "BROKER_EXPIRED", 1, after(62)),
        ("x", "x:1", "UNREGISTER_BROKER", 1, after(4073)),
    ],
    "How many brokers were alive, over time?": [
        *[(after(1), 1), (after(2), 2), (after(62), 1), (after(4072), 2), (after(4073), 1)]
    ],
    "How many queues did a topic have, over time?": [
        *[(after(1), 8), (after(2), 16), (after(43), 12), (after(44), 12), (after(62), 4), (after(71), 0)],
        *[(after(4072), 8), (after(4073), 0)],
    ],
    "What is different now from then?": [
        ("brokerAddrTable", '{"brokerName":"x"}', X, None),
        ("clusterAddrTable", '{"cluster":"c","brokerName":"x"}', "{}", None),
        (
            "topicQueueTable",
            '{"brokerName":"b","topic":"audit"}',
            ORDERS,
            '{"readQueueNums":8,"writeQueueNums":4,"perm":4,"topicSysFlag":0}',
        ),
        ("topicQueueTable", '{"brokerName":"b","topic":"orders"}', ORDERS, None),
        ("topicQueueTable", '{"brokerName":"x","topic":"audit"}', ORDERS, None),
        ("topicQueueTable", '{"brokerName":"x","topic":"orders"}', ORDERS, None),
    ],
    "How many topics appeared, hour by hour?": [
        (datetime(2023, 11, 14, 22, tzinfo=UTC), 2),
        (datetime(2023, 11, 14, 23, tzinfo=UTC), 1),
    ],
    "What could not be read from the log?": [
        (12, after(4074), "b:", "reason: payload format 110 is unknown here. Upgrade the fold first.")
    ],
}

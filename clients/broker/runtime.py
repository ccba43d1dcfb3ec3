# SPDX-License-Identifier: Apache-2.0
"""What GET_BROKER_RUNTIME_INFO says of a broker that keeps no messages. No I/O.

Source (5.5.0): org.apache.rocketmq.broker.processor.AdminBrokerProcessor.prepareRuntimeInfo.
"""

from __future__ import annotations

from typing import Final

from schemas.codes import V5_5_0

_ZERO: Final = (
    *("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
    *("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
    *("dispatchBehindBytes", "pageCacheLockTimeMills", "commitLogMinOffset", "commitLogMaxOffset"),
    *("sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueSize", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "startAcceptSendRequestTimeStamp"),
)
_ZERO_RATE: Final = ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio")
_ZERO_RATES: Final = ("putTps", "getTotalTps", "getFoundTps", "getMissTps", "getTransferredTps")


def runtime_info(*, is_master: bool, started_ms: int, topics: int, master_addr: str | None) -> dict[str, str]:
    """What is known; there are no messages, which is said in zeros so that mqadmin clusterList can print it.

    Args:
        is_master: Only a master serves.
        started_ms: When the broker started, milliseconds since the epoch.
        topics: How many it has.
        master_addr: A slave's master, if it is known.
    """
    facts = {
        **dict.fromkeys(_ZERO, "0"),
        **dict.fromkeys(_ZERO_RATE, "0.0"),
        **dict.fromkeys(_ZERO_RATES, "0.0 0.0 0.0"),
        "bootTimestamp": str(started_ms),
        "brokerActive": "true" if is_master else "false",
        "brokerVersion": str(V5_5_0),
        "brokerVersionDesc": "V5_5_0",
        "earliestMessageTimeStamp": str(started_ms),
        "topicNumber": str(topics),
    }
    if master_addr is not None:
        facts["masterAddr"] = master_addr
    return facts

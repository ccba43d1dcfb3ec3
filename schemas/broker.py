# SPDX-License-Identifier: Apache-2.0
"""Types of a broker's own data: DataVersion, QueueData settings, static topic mapping.

Wire names are RocketMQ's (camelCase). Python names are the same in snake_case.
Source: org.apache.rocketmq.remoting.protocol.DataVersion, .route.QueueData,
.statictopic.TopicQueueMappingInfo (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

MASTER_ID = 0
"""brokerId of a master (MixAll.MASTER_ID)."""

DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000
"""Timeout of a broker that names none, in ms (RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME)."""

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_PRIORITY = 8

Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""A Java int, and a table column of that type. Checked when a payload is decoded, not on construction."""

Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A Java long, and a table column of that type. Checked as `Int`."""


class DataVersion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """Version of a broker's topic table. Equality needs all three fields. The NameServer never orders versions by time.

    ``timestamp`` is milliseconds since the epoch on the broker's own clock.
    """

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0


class QueueRow(NamedTuple):
    """One topic's queues on one broker group: the value part of topicQueueTable (QueueData without brokerName)."""

    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_sys_flag: Int


class TopicQueueMappingInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Static-topic mapping of one broker. ``curr_id_map`` is logical queue id to physical queue id.

    All fields may be absent on the wire. ``bname`` decides the row under which it is stored.
    """

    topic: str | None = None
    scope: str | None = None
    total_queues: Int = 0
    bname: str | None = None
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[Int, Int] | None = None

# SPDX-License-Identifier: Apache-2.0
"""A static topic's logical queues: their offsets out of those of the physical queues behind them. Pure.

A logical queue is a list of pieces, each on one physical queue of one broker, the latest last; its broker, the leader,
knows the whole list. Worked example: piece one starts at logical offset 0 on broker-a, queue 0; piece two starts at
logical offset 100 on broker-b, queue 3. If broker-a's queue begins at 40 and broker-b's ends at 25, the logical queue
goes from 40 to 125.

Sources (5.5.0): org.apache.rocketmq.tools.admin.MQAdminUtils.convertPhysicalTopicStats, org.apache.rocketmq.remoting
.protocol.statictopic.TopicQueueMappingUtils (checkAndBuildMappingItems, findLogicQueueMappingItem),
LogicQueueMappingItem, TopicQueueMappingDetail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cli.admin.answers import AnswerBodyError, TopicOffset
from clients.route.queues import METADATA_SCOPE_GLOBAL, MessageQueue, mock_broker_name
from schemas.rocketmq_json import decode


class MappingItem(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One piece of a logical queue. ``logic_offset`` below 0 is not decided yet, ``end_offset`` below start is open."""

    bname: str
    queue_id: int
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1

    def loosely(self, physical_offset: int) -> int:
        """The logical offset of a physical one, kept within the piece (computeStaticQueueOffsetLoosely)."""
        end = max(physical_offset, self.start_offset)
        if self.end_offset >= self.start_offset:
            end = min(end, self.end_offset)
        return self.logic_offset + end - self.start_offset

    def strictly(self, physical_offset: int) -> int:
        """The same without an end (computeStaticQueueOffsetStrictly)."""
        return self.logic_offset + max(physical_offset - self.start_offset, 0)


class MappingDetail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Mappings that one broker knows: logical queue id to pieces (TopicQueueMappingDetail)."""

    bname: str
    scope: str = METADATA_SCOPE_GLOBAL
    epoch: int = 0
    hosted_queues: dict[int, list[MappingItem]] = msgspec.field(default_factory=dict)


class _ConfigAndMapping(msgspec.Struct, rename="camel"):
    mapping_detail: MappingDetail | None = None


_decoder = msgspec.json.Decoder(_ConfigAndMapping, strict=False)


def mapping_detail(body: bytes) -> MappingDetail | None:
    """The mapping in an answer to GET_TOPIC_CONFIG (TopicConfigAndQueueMapping); None for a topic without.

    Raises:
        AnswerBodyError: It is no such answer.
    """
    try:
        return decode(body, _decoder).mapping_detail
    except (ValueError, RecursionError) as error:
        raise AnswerBodyError(f"the answer is not a topic configuration: {error}") from error


def logical_offsets(
    topic: str, details: Iterable[MappingDetail], physical: Mapping[MessageQueue, TopicOffset]
) -> dict[MessageQueue, TopicOffset]:
    """The logical queues whose first and last piece have known offsets, under their mock brokerName.

    Args:
        topic: Whose queues.
        details: Of all brokers; the latest epoch decides who leads a queue.
        physical: Offsets of the physical queues.
    """
    found: dict[MessageQueue, TopicOffset] = {}
    led: set[int] = set()
    for detail in sorted(details, key=lambda one: -one.epoch):
        for queue_id, pieces in sorted(detail.hosted_queues.items()):
            if not pieces or pieces[-1].bname != detail.bname or queue_id in led:
                continue
            led.add(queue_id)
            offset = _offset(topic, pieces, physical)
            if offset is not None:
                found[MessageQueue(topic, mock_broker_name(detail.scope), queue_id)] = offset
    return found


def _offset(topic: str, pieces: list[MappingItem], physical: Mapping[MessageQueue, TopicOffset]) -> TopicOffset | None:
    decided = [piece for piece in pieces if piece.logic_offset >= 0]
    if not decided:
        return None
    # The piece that holds logical offset 0; of several that start there the latest, as the others are empty.
    first = next((piece for piece in reversed(decided) if piece.logic_offset == 0), decided[0])
    last = decided[-1]
    lowest = physical.get(MessageQueue(topic, first.bname, first.queue_id))
    highest = physical.get(MessageQueue(topic, last.bname, last.queue_id))
    if lowest is None or highest is None:
        return None
    low, high = first.loosely(lowest.min_offset), last.strictly(highest.max_offset)
    return TopicOffset(max(low, 0), max(high, 0), highest.last_update_timestamp)

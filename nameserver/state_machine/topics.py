# SPDX-License-Identifier: Apache-2.0
"""Commands on topics: delete and register a topic in the NameServer, wipe and add write permission."""

from __future__ import annotations

from msgspec.structs import replace

from nameserver.state_machine.liveness import without_digests, without_write_perm
from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    BrokerGroup,
    Outcome,
    TopicTable,
    each_row,
)
from schemas.broker import PERM_READ, PERM_WRITE, QueueRow
from schemas.events import AddWritePerm, DeleteTopic, RegisterTopic, WipeWritePerm
from schemas.outcomes import REJECTED, UNCHANGED, UNKNOWN_BROKER


def delete_topic(group: BrokerGroup, event: DeleteTopic) -> tuple[BrokerGroup, Outcome]:
    """216 (RouteInfoManager.deleteTopic): drop this group's row; with a cluster, only if the cluster lists the group.

    The digests are forgotten with the row: the next registration must look at its topics again, and writes it anew.
    Static-topic mapping is not removed.
    """
    if event.cluster_name and event.cluster_name not in group.clusters:
        return group, OUTCOME_UNCHANGED
    if event.topic not in group.topics:
        return group, OUTCOME_UNCHANGED
    kept = group.topics.changed({}, [event.topic])
    return replace(without_digests(group), topics=kept), OUTCOME_APPLIED


def register_topic(group: BrokerGroup, event: RegisterTopic) -> tuple[BrokerGroup, Outcome]:
    """217 (RouteInfoManager.registerTopic) for one group: put the row if the broker is known."""
    if not group.known:
        return group, Outcome(REJECTED, UNKNOWN_BROKER)
    data = event.queue_data
    row = QueueRow(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
    if group.topics.rows.get(event.topic) == row:
        return group, OUTCOME_UNCHANGED
    return replace(group, topics=group.topics.changed({event.topic: row})), OUTCOME_APPLIED


def wipe_write_perm(group: BrokerGroup, event: WipeWritePerm) -> tuple[BrokerGroup, Outcome]:
    """205: clear the write bit of every row. The count is of rows, changed or not."""
    after = without_write_perm(group)
    result = {"wipeTopicCount": len(group.topics.rows)}
    return after, Outcome(UNCHANGED if after is group else "applied", result=result)


def add_write_perm(group: BrokerGroup, event: AddWritePerm) -> tuple[BrokerGroup, Outcome]:
    """327: set every row to exactly 6; the inherit bit is lost, as in RocketMQ."""
    rows = group.topics.rows
    given = each_row(rows, lambda row: row._replace(perm=PERM_READ | PERM_WRITE))
    after = replace(group, topics=TopicTable(given)) if given != rows else group
    return after, Outcome(UNCHANGED if after is group else "applied", result={"addTopicCount": len(rows)})

# SPDX-License-Identifier: Apache-2.0
"""Answers, requests and shares, without a server."""

from __future__ import annotations

import pytest

from cli.admin import answers, requests
from cli.admin.answers import AnswerBodyError, TopicOffset, TopicStats
from cli.admin.topic_views import MappingDetail, MappingItem, allocate_averagely, logical_offsets, mapping_detail
from clients.route.queues import MessageQueue

STOCK_STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":5,"maxOffset":3,'
    b'"minOffset":1},{"brokerName":"broker-{b}","queueId":1,"topic":"t"}:{"lastUpdateTimestamp":0,"maxOffset":0,'
    b'"minOffset":0}},"topicPutTps":1.5}'
)


def test_topic_stats_with_objects_for_keys() -> None:
    assert answers.topic_stats(STOCK_STATS) == TopicStats(
        {MessageQueue("t", "broker-a", 0): TopicOffset(1, 3, 5), MessageQueue("t", "broker-{b}", 1): TopicOffset()}, 1.5
    )


def test_topic_stats_with_text_for_keys() -> None:
    body = rb'{"topicPutTps":0,"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":2,\"topic\":\"t\"}":{"maxOffset":9}}}'
    assert answers.topic_stats(body) == TopicStats({MessageQueue("t", "b", 2): TopicOffset(0, 9, 0)}, 0.0)


@pytest.mark.parametrize("body", [b'{"offsetTable":{},"topicPutTps":0.0}', b"{}"])
def test_topic_stats_of_nothing(body: bytes) -> None:
    assert answers.topic_stats(body) == TopicStats({}, 0.0)


@pytest.mark.parametrize("end", range(0, len(STOCK_STATS), 7))
def test_topic_stats_cut_short(end: int) -> None:
    with pytest.raises(AnswerBodyError):
        answers.topic_stats(STOCK_STATS[:end])


@pytest.mark.parametrize(
    "body", [b"[]", b'{"offsetTable":{[]:{}}}', b'{"offsetTable":{{}:{}}}', b"\xff", b'{"topicPutTps":"x"}']
)
def test_what_is_no_topic_stats(body: bytes) -> None:
    with pytest.raises(AnswerBodyError):
        answers.topic_stats(body)


def test_properties() -> None:
    body = b"listenPort=9876\n# remark\n\n key = a=b \nempty=\n"
    assert answers.properties(body) == {"listenPort": "9876", "key": "a=b", "empty": ""}


@pytest.mark.parametrize(
    ("old", "merged"),
    [
        (None, "broker-a:8"),
        ("  ", "broker-a:8"),
        ("broker-a:4", "broker-a:8"),
        ("broker-b:4;broker-a:4", "broker-b:4;broker-a:8"),
        ("broker-a:4;broker-b:4", "broker-b:4;broker-a:8"),
    ],
)
def test_order_configuration_of_one_broker_more(old: str | None, merged: str) -> None:
    assert requests.merge_order_conf(old, "broker-a:8") == merged


@pytest.mark.parametrize("queues", range(12))
@pytest.mark.parametrize("clients", range(1, 6))
def test_shares_are_even_and_lose_nothing(queues: int, clients: int) -> None:
    all_queues = [MessageQueue("t", "b", at) for at in range(queues)]
    names = [f"client-{at}" for at in range(clients)]
    shares = allocate_averagely(all_queues, names)
    assert [queue for name in names for queue in shares[name]] == all_queues
    sizes = [len(shares[name]) for name in names]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


# --- static topics ---


def item(bname: str, queue_id: int, logic: int, end: int = -1, start: int = 0) -> MappingItem:
    return MappingItem(bname=bname, queue_id=queue_id, logic_offset=logic, start_offset=start, end_offset=end)


def logical(*details: MappingDetail, **ranges: tuple[int, int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Logical queues out of physical ones, named a0, b3, ..."""
    physical = {
        MessageQueue("t", name[0], int(name[1:])): TopicOffset(low, high, 7) for name, (low, high) in ranges.items()
    }
    found = logical_offsets("t", details, physical)
    assert all(offset.last_update_timestamp == 7 for offset in found.values())
    return {(at.broker_name, at.queue_id): (one.min_offset, one.max_offset) for at, one in found.items()}


GLOBAL = "__syslo__global__"


def test_a_logical_queue_of_two_pieces() -> None:
    pieces = [item("a", 0, 0, end=100), item("b", 3, 100)]
    a, b = (MappingDetail(bname=name, epoch=2, hosted_queues={1: pieces}) for name in "ab")
    assert logical(a, b, a0=(40, 100), b3=(0, 25)) == {(GLOBAL, 1): (40, 125)}
    assert logical(a, b, a0=(400, 500), b3=(0, 25)) == {(GLOBAL, 1): (100, 125)}
    assert logical(a, b, a0=(40, 100)) == {}
    assert logical(a, a0=(40, 100), b3=(0, 25)) == {}, "only the leader's word counts"


def test_a_piece_that_is_not_decided_yet_does_not_count() -> None:
    pieces = [item("a", 0, 0), item("b", 0, -1)]
    assert logical(MappingDetail(bname="b", hosted_queues={0: pieces}), a0=(0, 9), b0=(0, 4)) == {(GLOBAL, 0): (0, 9)}
    assert logical(MappingDetail(bname="b", hosted_queues={0: pieces[1:], 1: []}), b0=(0, 4)) == {}


def test_the_latest_epoch_decides_who_leads() -> None:
    old = MappingDetail(bname="a", epoch=1, hosted_queues={0: [item("a", 0, 0)]})
    new = MappingDetail(bname="b", epoch=2, scope="mine", hosted_queues={0: [item("b", 0, 50, start=10)]})
    assert logical(old, new, a0=(0, 5), b0=(0, 30)) == {("__syslo__mine", 0): (50, 70)}


def test_the_mapping_in_an_answer() -> None:
    body = (
        b'{"mappingDetail":{"bname":"a","currIdMap":{0:0},"dirty":false,"epoch":5,"hostedQueues":{0:[{"bname":"a",'
        b'"endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},'
        b'"scope":"__global__","topic":"t","totalQueues":1},"perm":6,"topicName":"t"}'
    )
    assert mapping_detail(body) == MappingDetail(bname="a", epoch=5, hosted_queues={0: [item("a", 0, 0)]})
    assert mapping_detail(b'{"perm":6,"topicName":"t"}') is None
    with pytest.raises(AnswerBodyError):
        mapping_detail(b'{"mappingDetail":[]}')

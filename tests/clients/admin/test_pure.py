"""Answers, requests and shares, without a server."""

from __future__ import annotations

import pytest

from clients.admin import answers, requests
from clients.admin.answers import AnswerBodyError, TopicOffset, TopicStats
from clients.admin.topic_views import allocate_averagely
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

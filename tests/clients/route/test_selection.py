# SPDX-License-Identifier: Apache-2.0
"""Choosing queues: the branches of MQFaultStrategy and LatencyFaultToleranceImpl."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from clients.route.caller import SendWhichQueue, choose_message_queue, select_one_message_queue
from clients.route.latency import FaultTable
from clients.route.queues import TopicPublishInfo, topic_publish_info
from dev.support.routes import route, row

INFO = topic_publish_info("t", route([row("a", write=2), row("b", write=2)]))


def which(seed: int = 1) -> SendWhichQueue:
    return SendWhichQueue(random.Random(seed))


def failing(name: str, *, now_ms: int = 0, reachable: bool = True) -> FaultTable:
    faults = FaultTable()
    faults.update_fault_item(name, 10, isolation=True, reachable=reachable, now_ms=now_ms)
    return faults


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 5))
def test_round_robin_takes_every_queue_in_turn(seed: int, rounds: int) -> None:
    place = which(seed)
    taken = [choose_message_queue(INFO, place) for _ in range(4 * rounds)]
    assert taken[:4] * rounds == taken
    assert Counter(taken) == dict.fromkeys(INFO.message_queue_list, rounds)


def test_callers_start_at_different_places() -> None:
    choice = random.Random(7)
    starts = {choose_message_queue(INFO, SendWhichQueue(choice)) for _ in range(40)}
    assert len(starts) == 4


def test_the_index_never_goes_below_zero() -> None:
    place = which()
    place._index = 0x7FFF_FFFF
    assert place.increment_and_get() == 0
    place._index = 0xFFFF_FFFE
    assert place.increment_and_get() == 0x7FFF_FFFF
    assert place.increment_and_get() == 0


def test_the_broker_that_failed_last_is_avoided_if_there_is_another() -> None:
    place = which()
    for _ in range(8):
        queue = choose_message_queue(INFO, place, last_broker_name="a")
        assert queue is not None
        assert queue.broker_name == "b"
    alone = topic_publish_info("t", route([row("a", write=1)]))
    assert choose_message_queue(alone, place, last_broker_name="a") == alone.message_queue_list[0]


def test_no_queue_at_all() -> None:
    assert choose_message_queue(TopicPublishInfo(), which()) is None
    assert choose_message_queue(TopicPublishInfo(), which(), faults=FaultTable()) is None
    assert select_one_message_queue(INFO, which(), lambda queue: False) is None


def names(faults: FaultTable, now_ms: int, last: str | None = None) -> set[str]:
    place = which()
    queues = [choose_message_queue(INFO, place, faults=faults, now_ms=now_ms, last_broker_name=last) for _ in range(8)]
    return {queue.broker_name for queue in queues if queue is not None}


def test_an_unavailable_broker_is_avoided_until_its_time_is_over() -> None:
    faults = failing("a")
    assert names(faults, 9_999) == {"b"}
    assert names(faults, 10_000) == {"a", "b"}


def test_with_none_available_one_within_reach_is_taken() -> None:
    faults = failing("a", reachable=False)
    faults.update_fault_item("b", 10, isolation=True, reachable=True, now_ms=0)
    assert names(faults, 0) == {"b"}


def test_with_none_within_reach_any_is_taken() -> None:
    faults = failing("a", reachable=False)
    faults.update_fault_item("b", 10, isolation=True, reachable=False, now_ms=0)
    assert names(faults, 0) == {"a", "b"}


def test_the_last_broker_is_taken_again_rather_than_nobody() -> None:
    # b is out of time and out of reach, a failed last: no filter leaves a queue, so any is taken.
    assert names(failing("b", reachable=False), 0, last="a") == {"a", "b"}


def test_a_further_attempt_starts_at_a_random_place() -> None:
    place = which()
    place.reset()
    first = place.increment_and_get()
    place.reset()
    assert place.increment_and_get() != first + 1
    for faults, random_place in ((FaultTable(), True), (None, False)):
        place._index = 100
        choose_message_queue(INFO, place, reset_index=True, faults=faults)
        assert (place._index != 101) == random_place


def test_a_shorter_avoidance_never_ends_a_longer_one() -> None:
    faults = FaultTable()
    faults.update_fault_item("a", 15_000, isolation=False, reachable=True, now_ms=0)
    faults.update_fault_item("a", 600, isolation=False, reachable=True, now_ms=1_000)
    faults.update_fault_item("a", 1, isolation=False, reachable=True, now_ms=2_000)
    assert not faults.is_available("a", 29_999)
    assert faults.is_available("a", 30_000)


def test_the_detector_looks_at_each_broker_once_an_interval_and_brings_it_back() -> None:
    faults = failing("a", reachable=False)
    assert faults.due(0, 2_000) == ["a"]
    assert faults.due(1_999, 2_000) == []
    faults.update_fault_item("a", 10, isolation=True, reachable=False, now_ms=1_999)
    assert faults.due(1_999, 2_000) == []
    assert faults.due(2_000, 2_000) == ["a"]
    assert not faults.is_reachable("a")
    faults.detected("a")
    faults.detected("nobody")
    assert faults.is_reachable("a")
    faults.remove("a")
    assert faults.item("a") is None
    assert faults.is_available("a", 0)

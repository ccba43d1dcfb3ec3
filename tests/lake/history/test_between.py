# SPDX-License-Identifier: Apache-2.0
"""A time within an epoch: the route after every change up to then, whatever the epochs are cut like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from api.live_view.live_state import LiveState
from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import TOPICS, batches, generated, time_of, written
from lake.history.as_of import rfc3339
from lake.history.history import History, PastRoute
from nameserver.route_queries import pick_up_topic_route
from nameserver.view.snapshot import RouteView
from schemas.errors import BeforeHistoryError, NotFoundError
from schemas.rocketmq_json import encode_topic_route
from schemas.route_commit import NO_COMMIT


def body(view: RouteView, topic: str) -> bytes | None:
    route = pick_up_topic_route(view, topic, support_acting_master=True, order_message_enable=True)
    return None if route is None else encode_topic_route(route, numeric_keys=False)


def route(history: History, topic: str, as_of: str) -> PastRoute | None:
    try:
        return history.route(topic, as_of, support_acting_master=True, order_message_enable=True)
    except NotFoundError:
        return None


@pytest.mark.parametrize(("seed", "sizes"), [(1, (9, 1, 20)), (2, (61,)), (3, (2, 5, 30))])
def test_each_change_shows_from_its_own_time_on(is_deep: bool, tmp_path: Path, seed: int, sizes: Sequence[int]) -> None:
    """Each moment is asked for one of the topics, the next one for another; with --deep for all."""
    step = 1 if is_deep else len(TOPICS)
    records = generated(seed)
    lake = drive(tmp_path, list(batches(records, sizes)))
    assert len([epoch for epoch in lake.epochs if epoch]) <= len(list(batches(records, sizes)))
    history = History(tmp_path)
    head = LiveState(RouteView.empty(), everything=True)
    within = 0
    for number, record in enumerate(records):
        head.take(record)
        view = head.publish(NO_COMMIT)
        for topic in TOPICS[number % step :: step]:
            expected = body(view, topic)
            found = route(history, topic, time_of(record))
            assert (found and found.body) == expected, (record.offset, topic)
            if found is not None:
                assert found.commit.log_offset <= record.offset
                within += found.commit.epoch == 0 or found.commit.log_offset != lake.writer.log_offset
    assert within


def test_an_expiry_shows_from_the_millisecond_after_its_deadline(tmp_path: Path) -> None:
    silent = make.register("b-0:1", heartbeat_timeout_millis=1_000)
    other = make.register("x-0:1", name="x", heartbeat_timeout_millis=60_000)
    records = written([(0, silent), (0, other), (900, make.put("n", "k")), (600, make.clock())])
    drive(tmp_path, [records[:2], records[2:]])
    history = History(tmp_path)

    def brokers(ms: float) -> tuple[int, str]:
        found = route(history, "T", time_of(records[0], ms))
        assert found is not None
        return found.body.count(b"brokerAddrs"), rfc3339(found.commit.event_time)

    assert brokers(1_000) == (2, time_of(records[2]))
    assert brokers(1_001) == brokers(1_499) == (1, time_of(records[0], 1_001))
    assert brokers(1_500) == (1, time_of(records[3]))


def test_before_the_first_change(tmp_path: Path) -> None:
    records = written([(0, make.heartbeat()), (5, make.register()), (5, make.wipe())])
    drive(tmp_path, [records])
    history = History(tmp_path)
    with pytest.raises(BeforeHistoryError):
        history.route("T", time_of(records[1], -1))
    first = history.route("T", time_of(records[1]))
    assert (first.commit.epoch, first.commit.log_offset) == (0, records[1].offset)
    assert b'"perm":6' in first.body
    assert b'"perm":4' in history.route("T", time_of(records[2])).body


def test_an_epoch_and_its_time_may_differ(tmp_path: Path) -> None:
    """Two events of one millisecond, cut apart by an epoch's end: the epoch has one of them, the time both."""
    records = written([(0, make.register()), (0, make.wipe()), (5, make.put("n", "k"))])
    drive(tmp_path, [records[:1], records[1:]])
    history = History(tmp_path)
    for _ in range(2):  # asked for the first time, and answered from memory
        assert b'"perm":6' in history.route("T", "1").body
        assert b'"perm":4' in history.route("T", time_of(records[0])).body

# SPDX-License-Identifier: Apache-2.0
"""A Kafka that stops with records and stamps them when it goes on: no broker expires for that."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from dev.peers.kafka import Kafka
from dev.support import events as make
from dev.support.loops import eventually, on_a_loop
from eventlog import LogRecord, open_log
from eventlog.group_commit import GroupCommit
from eventlog.worker import LogWorker
from nameserver.state_machine.replay import read_event
from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import apply, step
from schemas.events import Resume, encode, routing_key

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("kafka")]

GAP_S = 1.0
HELD_S = 3.5
TIMEOUT_MS = 2_000
"""Of a broker: longer than what counts as silence of the log, shorter than Kafka stands still."""


@on_a_loop
async def test_brokers_do_not_expire_while_kafka_stands_still(kafka: Kafka, new_topic: Callable[[], str]) -> None:
    """What was sent before the stop comes with the stamp of its end, and no look at the log was due before it."""
    url = new_topic()
    worker = LogWorker(url, "g1", GAP_S)
    await worker.open()
    written: list[LogRecord] = []
    writer = GroupCommit(worker, "g1", clock_interval_s=0.2, on_written=written.extend)
    registration = make.register(heartbeat_timeout_millis=TIMEOUT_MS)
    try:
        await writer.start()
        await writer.submit(routing_key(registration), encode(registration))
        kafka.process.sigstop()
        late = writer.submit("kv", encode(make.put("n", "k", "v")))  # under way when Kafka stands still
        began_s = time.monotonic()
        try:
            await eventually(lambda: time.monotonic() - began_s > HELD_S)
        finally:
            kafka.process.sigcont()
        await late
        after = len(written)
        await eventually(lambda: len(written) > after)
    finally:
        await writer.stop()
        await worker.close()
    with closing(open_log(url)) as log:
        records = log.read(0)
    gaps = [
        after
        for before, after in itertools.pairwise(records)
        if after.event_time_ms > before.event_time_ms + TIMEOUT_MS
    ]
    assert [type(read_event(record)) for record in gaps] == [Resume]
    state = RouteState()
    for record in records:
        apply(state, step(state, read_event(record), At(record.offset, record.event_time_ms)))
    assert "b" in state.groups

# SPDX-License-Identifier: Apache-2.0
"""When a broker registers and sends heartbeats. No I/O; the time is passed in.

    0 s        10 s        40 s        70 s             registrations, at the default period of 30 s
    |-----------|-----------|-----------|----->
      | | | | | | | | | | | | | | | | |                 heartbeats every second, with enableSlaveActingMaster

A NameServer that could not be reached is tried again every three seconds, which is how often RocketMQ looks whether one
has come back; RocketMQ then waits for the next round.

Source (5.5.0): org.apache.rocketmq.broker.BrokerController (start, scheduleSendHeartbeat).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from clients.broker.config import BrokerConfig

FIRST_ROUND_MS: Final = 10_000
MIN_PERIOD_MS: Final = 10_000
MAX_PERIOD_MS: Final = 60_000
FIRST_HEARTBEAT_MS: Final = 1_000
RETRY_MS: Final = 3_000
_NEVER: Final = float("inf")


class Task(Enum):
    """Something to do now."""

    ROUND = "register with every NameServer"
    RETRY = "register with those that failed"
    HEARTBEAT = "send a heartbeat"


def register_period_ms(configured_ms: int) -> int:
    """registerNameServerPeriod, kept to 10 to 60 seconds."""
    return max(MIN_PERIOD_MS, min(configured_ms, MAX_PERIOD_MS))


class Cadence:
    """The timetable of one broker that has just registered for the first time. Times are of any steady clock, ms."""

    def __init__(self, config: BrokerConfig, now_ms: float) -> None:
        """Start the timetable."""
        self._period_ms = register_period_ms(config.register_name_server_period)
        self._heartbeat_ms = max(1, config.broker_heartbeat_interval)
        self._next: dict[Task, float] = {Task.ROUND: now_ms + FIRST_ROUND_MS}
        if config.enable_slave_acting_master:
            self._next[Task.HEARTBEAT] = now_ms + FIRST_HEARTBEAT_MS

    def wait_ms(self, now_ms: float) -> float:
        """How long there is nothing to do."""
        return max(0.0, min(self._next.values(), default=_NEVER) - now_ms)

    def due(self, now_ms: float) -> list[Task]:
        """What is to do now; each is counted as done. Times that were slept through are not made up for."""
        tasks = [task for task in Task if self._next.get(task, _NEVER) <= now_ms]
        for task in tasks:
            if task is Task.RETRY:
                del self._next[task]
            else:
                every_ms = self._period_ms if task is Task.ROUND else self._heartbeat_ms
                missed = (now_ms - self._next[task]) // every_ms
                self._next[task] += (missed + 1) * every_ms
        return [task for task in tasks if task is not Task.RETRY or Task.ROUND not in tasks]

    def registered(self, now_ms: float, *, failures: bool) -> None:
        """A registration is over; with failures, the next try comes before the next round."""
        if failures:
            self._next[Task.RETRY] = now_ms + RETRY_MS
        else:
            self._next.pop(Task.RETRY, None)

# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about connections, as in test_rules.py."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Logged
from dev.fault_injection.hand_made import (
    BROKER,
    REMOTING,
    actor,
    again,
    good_case,
    put_entry,
    read_entry,
    registration,
    written,
)
from dev.fault_injection.record import Ended
from dev.fault_injection.rules_of_connections import connections
from schemas.events import Channel, ChannelClosed

CHANNEL = Channel(gateway="g", connection="1")


@pytest.fixture
def case() -> Case:
    """The broker's connection ended at 4 s, and CHANNEL_CLOSED is on the log. A client writes at 30 s."""
    case = good_case()
    closed = ChannelClosed(
        actor=actor(REMOTING, "remoting"),
        cluster_name="c",
        broker_name="b",
        broker_addr=BROKER.addr,
        channel=CHANNEL,
    )
    for place, (queues, counter) in enumerate(((8, 1), (4, 2))):
        event = msgspec.structs.replace(registration(queues, counter), channel=CHANNEL)
        case.evidence.log[place] = case.evidence.log[place]._replace(event=written(event, REMOTING, "remoting"))
    case.evidence.log.append(Logged(5, 5_000, closed))
    case.record.ended = [Ended("w", 0, REMOTING, 4.0, "asked")]
    case.record.entries.append(put_entry(6, 30.0))
    return case


def messages(case: Case) -> list[str]:
    return [violation.message for violation in connections(again(case))]


def test_a_connection_that_ended_is_no_violation(case: Case) -> None:
    assert messages(case) == []


def test_a_connection_that_did_not_end_is_a_violation(case: Case) -> None:
    case.record.ended = []
    assert messages(case) == [f"the connection of {REMOTING} had not ended"]


def test_an_answer_after_the_end_of_a_connection_is_a_violation(case: Case) -> None:
    """A client got an offset after the CHANNEL_CLOSED at 30.1 s, and the connection ended at 40 s."""
    case.record.ended = [Ended("w", 0, REMOTING, 40.0, "asked")]
    assert messages(case) == []
    case.record.entries.append(replace(read_entry(4, 35.0, None), worker="w", peer=REMOTING))
    assert messages(case) == [f"the connection of {REMOTING} had not ended"]

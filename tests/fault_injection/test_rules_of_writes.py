# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about writes as they were sent and when, as in test_rules.py."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from dev.fault_injection import rules_of_writes
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Logged
from dev.fault_injection.hand_made import BROKER, HTTP, REMOTING, actor, again, good_case, read_entry, written
from dev.fault_injection.operations import Operation
from dev.fault_injection.record import Entry, Injected
from dev.support import events
from schemas.broker import QueueRow
from schemas.events import AccessRefused, RegisterBroker, RegisterTopic, RegisterTopicQueue


@pytest.fixture
def case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    return good_case()


def registered(case: Case, offset: int, **more: object) -> Logged:
    logged = case.evidence.log[offset - 1]
    assert isinstance(logged.event, RegisterBroker)
    return logged._replace(event=msgspec.structs.replace(logged.event, **more))


def as_sent(case: Case) -> list[str]:
    return [violation.message for violation in rules_of_writes.as_sent(again(case))]


def in_order(case: Case) -> list[str]:
    return [violation.message.partition(" ")[0] for violation in rules_of_writes.in_order(again(case))]


def once(case: Case) -> list[str]:
    return [violation.message for violation in rules_of_writes.once(again(case))]


# --- as it was sent ---


@pytest.mark.parametrize(
    "more",
    [
        {"topic_config_table": {"T": QueueRow(4, 4, 6, 0)}},
        {"topic_config_digest": "of others"},
        {"heartbeat_timeout_millis": 9_000},
        {"enable_acting_master": True},
        {"ha_server_addr": "10.9.0.9:10912"},
    ],
)
def test_another_registration_than_was_sent(case: Case, more: dict[str, object]) -> None:
    assert as_sent(case) == []
    case.evidence.log[1] = registered(case, 2, **more)
    assert as_sent(case)


def test_a_change_that_goes_down_as_a_repetition(case: Case) -> None:
    """Its topics are unknown, and they never come."""
    whole = case.evidence.log[1]
    case.evidence.log[1] = registered(case, 2, topic_config_table=None)
    assert as_sent(case) == ["acknowledged 1 times, and 0 times on the log with what was not known"]
    case.evidence.log.insert(2, whole._replace(offset=3))
    case.evidence.log[3:] = [logged._replace(offset=logged.offset + 1) for logged in case.evidence.log[3:]]
    assert as_sent(case) == []


# --- when it was sent ---


def test_a_log_in_another_order_than_the_answers_is_a_violation(case: Case) -> None:
    """The second registration was sent when the first had been acknowledged."""
    assert in_order(case) == []
    log = case.evidence.log
    log[0], log[1] = log[1]._replace(offset=1, time_ms=1_000), log[0]._replace(offset=2, time_ms=2_000)
    assert in_order(case) == ["written"] * 2


def test_a_lost_oneway_request_is_a_violation_without_a_fault(case: Case) -> None:
    """Its sender gets no answer. The event is there all the same, unless a fault was near."""
    beat = Operation("heartbeat", BROKER, one_way=True)
    case.record.entries += [
        Entry("w", "remoting", REMOTING, beat, 6.0, 6.0),
        replace(read_entry(4, 6.1, None), worker="w", peer=REMOTING),
    ]
    assert in_order(case) == ["sent"]
    case.record.faults = [Injected("disk-full", 5.0, 6.0)]
    assert in_order(case) == []
    case.record.faults = []
    case.evidence.log.append(Logged(5, 6_000, written(events.heartbeat(BROKER.addr), REMOTING, "remoting")))
    assert in_order(case) == []


# --- events that no client sent ---


def test_an_event_that_no_client_sent_is_a_violation(case: Case) -> None:
    refused = AccessRefused(
        actor=actor(HTTP, "http"), request="x", needed=None, role=None, reason="x", remark="x", is_refused=True
    )
    topic = RegisterTopic(actor=actor(HTTP, "remoting"), topic="X", queue_data=RegisterTopicQueue("b", 8, 8, 6, 0))
    case.evidence.log += [Logged(5, 6_000, refused), Logged(6, 6_000, topic)]
    assert once(case) == ["sent 0 times, 1 on the log", "nobody sends such a thing"]

# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about writes as they were sent and when, as in test_rules.py."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from dev.fault_injection import rules_of_writes
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Logged
from dev.fault_injection.hand_made import (
    BROKER,
    HTTP,
    REMOTING,
    actor,
    again,
    good_case,
    put_entry,
    read_entry,
    written,
)
from dev.fault_injection.operations import Operation
from dev.fault_injection.record import Entry, Injected
from dev.support import events
from schemas.broker import DataVersion, QueueRow
from schemas.events import AccessRefused, DeleteKvConfig, PutKvConfig, RegisterBroker, RegisterTopic, RegisterTopicQueue


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


def test_read_and_write_queues_that_change_places(case: Case) -> None:
    operation = replace(case.record.entries[3].operation, topics={"T": (8, 2), "U": (4, 4)})
    case.record.entries[3] = replace(case.record.entries[3], operation=operation)
    table = {"T": QueueRow(2, 8, 6, 0), "U": QueueRow(4, 4, 6, 0)}
    case.evidence.log[1] = registered(case, 2, topic_config_table=table)
    assert as_sent(case)[0].startswith("the log has the topics {'T': QueueRow(read_queue_nums=2, write_queue_nums=8")


def test_a_change_that_goes_down_as_a_repetition(case: Case) -> None:
    """Its topics are known to nobody, and they never come."""
    whole = case.evidence.log[1]
    case.evidence.log[1] = registered(case, 2, topic_config_table=None)
    assert as_sent(case) == ["acknowledged 1 times, and 0 times on the log with what was not known"]
    case.evidence.log.insert(2, whole._replace(offset=3))
    case.evidence.log[3:] = [logged._replace(offset=logged.offset + 1) for logged in case.evidence.log[3:]]
    assert as_sent(case) == []


def test_a_repetition(case: Case) -> None:
    """It need not have its topics, unless one of them was deleted since."""
    case.record.entries.append(replace(case.record.entries[3], sent_s=6.0, done_s=6.1))
    case.evidence.log.append(registered(case, 2, topic_config_table=None)._replace(offset=5, time_ms=6_000))
    assert as_sent(case) == []
    case.evidence.log.insert(4, Logged(5, 5_500, events.delete_topic("T")))
    case.evidence.log[5] = case.evidence.log[5]._replace(offset=6)
    assert as_sent(case) == ["acknowledged 2 times, and 1 times on the log with what was not known"]


def test_a_repetition_of_one_who_has_lost_its_id(case: Case) -> None:
    """Refused for its stateVersion, with topics as without: it need not come again, nor the one after it."""
    case.record.entries += [replace(case.record.entries[3], sent_s=6.0, done_s=6.1)] * 2
    version = DataVersion(99, 1_700_000_000_000, 1)
    case.evidence.log += [
        registered(case, 2, broker_addr="10.9.0.99:10911", data_version=version)._replace(offset=5, time_ms=5_500),
        registered(case, 2, topic_config_table=None)._replace(offset=6, time_ms=6_000),
        registered(case, 2, topic_config_table=None)._replace(offset=7, time_ms=6_050),
    ]
    assert as_sent(case) == []


def test_two_at_once_that_come_again_with_their_topics(case: Case) -> None:
    case.record.entries += [replace(case.record.entries[3], sent_s=6.0, done_s=6.1)] * 2
    slim, whole = registered(case, 2, topic_config_table=None), case.evidence.log[1]
    both = [slim, slim, whole, whole]
    case.evidence.log += [logged._replace(offset=5 + n, time_ms=6_000) for n, logged in enumerate(both)]
    assert once(case) == []
    case.evidence.log.append(whole._replace(offset=9, time_ms=6_000))
    assert once(case) == ["sent 3 times, 6 on the log"]


# --- when it was sent ---


def test_the_order_of_the_log(case: Case) -> None:
    """The second registration was sent when the first had been acknowledged."""
    assert in_order(case) == []
    log = case.evidence.log
    log[0], log[1] = log[1]._replace(offset=1, time_ms=1_000), log[0]._replace(offset=2, time_ms=2_000)
    assert in_order(case) == ["written"] * 2


def test_a_write_in_doubt(case: Case) -> None:
    """A put was given up at 1.2 s; what was sent at 20 s may be before it on the log, what was sent at 60 s may not."""
    put = Operation("put-kv", ask={"namespace": "n", "key": "k", "value": "old"})
    delete = Operation("delete-kv", ask={"namespace": "n", "key": "k"})
    answer = json.dumps({"outcome": "applied"})
    case.record.entries += [
        Entry("a", "http", "127.0.0.1:9", put, 1.1, 1.2, 503),
        Entry("a", "http", HTTP, delete, 20.0, 20.1, 200, answer, offset=5, visible=True),
    ]
    gone = DeleteKvConfig(actor=events.actor(), namespace="n", key="k")
    old = PutKvConfig(actor=events.actor(), namespace="n", key="k", value="old")
    case.evidence.log += [
        Logged(5, 20_000, written(gone, HTTP, "http")),
        Logged(6, 21_000, written(old, "127.0.0.1:9", "http")),
    ]
    assert in_order(case) == []
    case.record.entries[-1] = replace(case.record.entries[-1], sent_s=60.0, done_s=60.1)
    assert in_order(case) == ["written"]


def test_one_offset_for_two(case: Case) -> None:
    case.record.entries.append(replace(put_entry(3, 3.0), worker="b"))
    assert in_order(case) == ["offset"]


def test_one_way(case: Case) -> None:
    """Whoever sends it is not answered; it is there all the same, unless a fault was near."""
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


# --- what nobody sent ---


def test_what_nobody_sends(case: Case) -> None:
    refused = AccessRefused(
        actor=actor(HTTP, "http"), request="x", needed=None, role=None, reason="x", remark="x", is_refused=True
    )
    topic = RegisterTopic(actor=actor(HTTP, "remoting"), topic="X", queue_data=RegisterTopicQueue("b", 8, 8, 6, 0))
    case.evidence.log += [Logged(5, 6_000, refused), Logged(6, 6_000, topic)]
    assert once(case) == ["sent 0 times, 1 on the log", "nobody sends such a thing"]


def test_a_topic_of_a_group_that_nobody_knows(case: Case) -> None:
    ask = {"brokerName": "b", "reads": "8", "writes": "8", "topic": "X"}
    register = Operation("register-topic", ask=ask)
    case.record.entries.append(Entry("a", "remoting", "127.0.0.1:9", register, 6.0, 6.1, 0))
    assert once(case) == ["acknowledged 1 times, 0 on the log"]
    other = replace(register, ask={**ask, "brokerName": "nobody"})
    case.record.entries[-1] = replace(case.record.entries[-1], operation=other)
    assert once(case) == []

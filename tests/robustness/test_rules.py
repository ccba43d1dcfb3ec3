# SPDX-License-Identifier: Apache-2.0
"""Every rule of the judge, on a history written by hand that is good, and on the same with one thing wrong."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schemas.broker import DataVersion
from schemas.events import Actor, AnyEvent, Clock, DeleteTopic, PutKvConfig, RegisterBroker, Resume
from tests.robustness import rules, rules_of_time
from tests.robustness.answers import tables_of
from tests.robustness.case import Case
from tests.robustness.evidence import Epoch, Evidence, Logged
from tests.robustness.operations import Broker, Operation
from tests.robustness.record import Entry, Record
from tests.support import events

BROKER = Broker("c", "b", 0, "10.9.0.1:10911", 8_000)
REMOTING, HTTP = "127.0.0.1:1", "127.0.0.1:2"
ROUTE = Operation("route", ask={"topic": "T"})


def registration(queues: int, counter: int) -> RegisterBroker:
    row = events.ROW._replace(read_queue_nums=queues, write_queue_nums=queues)
    return events.register(
        BROKER.addr,
        name=BROKER.name,
        table=events.topics("T", "U", row=row),
        version=replace_counter(counter),
        heartbeat_timeout_millis=BROKER.timeout_ms,
    )


def replace_counter(counter: int) -> DataVersion:
    return DataVersion(0, 1_700_000_000_000, counter)


def body(queues: int) -> str:
    row = {"brokerName": "b", "perm": 6, "readQueueNums": queues, "topicSysFlag": 0, "writeQueueNums": queues}
    data = {"brokerAddrs": {"0": BROKER.addr}, "brokerName": "b", "cluster": "c", "enableActingMaster": False}
    return json.dumps({"brokerDatas": [data], "filterServerTable": {}, "queueDatas": [row]})


def actor(peer: str, via: str) -> Actor:
    return Actor(gateway="g", via=via, peer=peer)


def written(event: AnyEvent, peer: str, via: str) -> AnyEvent:
    import msgspec

    return msgspec.structs.replace(event, actor=actor(peer, via))


def register_entry(counter: int, sent_s: float) -> Entry:
    operation = Operation("register", BROKER, counter, {"T": 8, "U": 8})
    return Entry("w", "remoting", REMOTING, operation, sent_s, sent_s + 0.1, 0)


def put_entry(offset: int, sent_s: float) -> Entry:
    operation = Operation("put-kv", ask={"namespace": "n", "key": "k", "value": "v"})
    answer = json.dumps({"outcome": "applied"})
    return Entry("a", "http", HTTP, operation, sent_s, sent_s + 0.1, 200, answer, offset=offset, visible=True)


def read_entry(queues: int, sent_s: float, offset: int | None, **more: Any) -> Entry:
    via = "remoting" if offset is None else "http"
    code = 0 if offset is None else 200
    entry = Entry("r", via, "127.0.0.1:3", ROUTE, sent_s, sent_s + 0.1, code, body(queues), offset=offset)
    return replace(entry, **more)


@pytest.fixture
def case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    log = [
        Logged(1, 1_000, written(registration(8, 1), REMOTING, "remoting")),
        Logged(2, 2_000, written(registration(4, 2), REMOTING, "remoting")),
        Logged(3, 3_000, written(PutKvConfig(actor=events.actor(), namespace="n", key="k", value="v"), HTTP, "http")),
        Logged(4, 5_000, Clock(actor=Actor(gateway="g", via="routelake"))),
    ]
    entries = [
        register_entry(1, 1.0),
        read_entry(8, 1.5, 1),
        read_entry(8, 1.6, None),
        register_entry(2, 2.0),
        read_entry(4, 2.5, 2),
        read_entry(4, 2.6, None),
        put_entry(3, 3.0),
        read_entry(4, 3.5, 3, asked={"wait_for": "3"}),
        read_entry(4, 3.6, 3, epoch=1, asked={"reads": "committed"}),
        read_entry(4, 3.7, 3, epoch=1, asked={"as_of": "1"}, operation=Operation("as-of", ask=ROUTE.ask)),
    ]
    evidence = Evidence(log=log, epochs=[Epoch(1, 4, 4, 5_000)])
    evidence.changes = Counter({(str(offset), "C", "b", "-1", "None", "None", "None"): 1 for offset in (1, 2, 3)})
    found = Case(Record({"seed": 1}, entries, [], 1.0), evidence)
    evidence.topics, evidence.brokers, evidence.kv = tables_of(found.expected.model)
    return found


def again(case: Case) -> Case:
    """Judged anew after a change."""
    return Case(case.record, case.evidence)


def test_a_good_history(case: Case) -> None:
    assert [violation for rule in rules.RULES for violation in rule(case)] == []
    assert len(case.reads) == 7
    assert [offset for _, offset in case.places] == [1, 2, 3]


# --- (a) ---


def test_a_lost_event(case: Case) -> None:
    del case.evidence.log[1]
    (found, *_) = rules.once(again(case))
    assert found.message == "acknowledged 1 times, 0 on the log"
    assert json.loads(found.cut[0])["operation"]["version"] == 2


def test_another_event_at_the_offset(case: Case) -> None:
    event = DeleteTopic(actor=actor(HTTP, "http"), topic="X")
    case.evidence.log[2] = Logged(3, 3_000, event)
    messages = [found.message for found in rules.once(again(case))]
    assert "it is not at offset 3" in messages
    assert "sent 0 times, 1 on the log" in messages


def test_a_doubled_event(case: Case) -> None:
    case.evidence.log.append(case.evidence.log[2]._replace(offset=5))
    assert [found.message for found in rules.once(again(case))] == ["sent 1 times, 2 on the log"]


def test_a_registration_may_go_down_again_with_its_topics(case: Case) -> None:
    import msgspec

    first = case.evidence.log[1]
    assert isinstance(first.event, RegisterBroker)
    slim = msgspec.structs.replace(first.event, topic_config_table=None)
    case.evidence.log[1:2] = [first._replace(offset=2, event=slim), first._replace(offset=3)]
    case.evidence.log[3] = case.evidence.log[3]._replace(offset=4)
    messages = [found.message for found in rules.once(again(case))]
    assert not any("sent 1 times" in message for message in messages)


def test_folded_twice_or_not_at_all(case: Case) -> None:
    key = next(iter(case.evidence.changes))
    case.evidence.changes[key] = 2
    assert "folded 2 times" in rules.once(again(case))[0].message
    case.evidence.changes = Counter({key: 1})
    assert rules.once(again(case))[0].message == "applied, and offset 3 is not in routeChangeTable"


def test_a_gap_between_epochs_and_quarantine(case: Case) -> None:
    case.evidence.epochs.append(Epoch(3, 4, 4, 5_000))
    case.evidence.quarantined = [2]
    assert len(rules.once(again(case))) == 2


# --- (b), (c), (d) ---


def test_not_what_the_offset_says(case: Case) -> None:
    case.record.entries.append(read_entry(8, 4.0, 3))
    (found,) = rules.equals_the_model(again(case))
    assert found.message == "not the answer at offset 3"
    assert any("it was right last at offset 1" in line for line in found.cut)
    assert any(line.startswith("log 2 at") for line in found.cut)


def test_an_answer_that_never_was_right(case: Case) -> None:
    case.record.entries.append(read_entry(5, 4.0, None))
    assert [found.message for found in rules.equals_the_model(again(case))] == ["not the answer at any offset up to 4"]


def test_an_answer_from_the_future(case: Case) -> None:
    """Without an offset: what is sent later cannot be in it."""
    case.record.entries.append(read_entry(4, 1.7, None))
    assert [found.message for found in rules.equals_the_model(again(case))] == ["not the answer at any offset up to 1"]


def test_half_an_epoch(case: Case) -> None:
    committed = {"reads": "committed"}
    case.record.entries.append(read_entry(8, 4.0, 3, epoch=1, asked=committed))
    case.record.entries.append(read_entry(8, 4.0, 3, epoch=2, asked=committed))
    messages = [found.message for found in rules.equals_the_model(again(case))]
    assert messages == ["not the answer of epoch 1", "there is no epoch 2"]


def test_a_stale_answer(case: Case) -> None:
    """Right once, but a write had been acknowledged since, to somebody else."""
    case.record.entries.append(read_entry(8, 2.2, None))
    assert rules.equals_the_model(again(case)) == []
    (found,) = rules.never_back(again(case))
    assert found.message == "older than offset 2, which had been acknowledged or seen before it was asked"


def test_an_offset_that_goes_back(case: Case) -> None:
    case.record.entries.append(read_entry(8, 4.0, 1))
    (found,) = rules.never_back(again(case))
    assert found.message.startswith("offset 1, though 3 had been")
    assert len(found.cut) == 2


def test_a_wait_that_was_not_kept(case: Case) -> None:
    case.record.entries.append(read_entry(4, 4.0, 3, asked={"wait_for": "4"}))
    assert rules.never_back(again(case))[0].message.startswith("offset 3, though 4 had been")


def test_two_answers_of_one_moment(case: Case) -> None:
    as_of = Operation("as-of", ask=ROUTE.ask)
    case.record.entries.append(read_entry(8, 4.0, 3, asked={"as_of": "1"}, operation=as_of))
    messages = [found.message for found in rules_of_time.the_past_stays(again(case))]
    assert messages == ["one moment, two answers", "not what epoch 1 was"]


# --- (e), (f), (g) ---


def test_expired_too_early(case: Case) -> None:
    case.evidence.expired = [("b", 9_999)]
    assert rules_of_time.expiry(again(case))[0].message == "b expired at 9999, though it was heard in time"


def test_expired_though_heard(case: Case) -> None:
    """By the log's times eight seconds went by, by the clients' clock one and a half."""
    case.evidence.log[2] = case.evidence.log[2]._replace(time_ms=12_000)
    case.record.entries.append(read_entry(4, 5.0, 4))
    found = [violation for violation in rules_of_time.expiry(again(case)) if "after it was heard" in violation.message]
    assert [violation.message for violation in found] == [
        f"b ({BROKER.addr}) expired at offset 4, 3.1 s after it was heard"
    ]


def test_stamped_with_another_time(case: Case) -> None:
    case.record.about["wall_ahead_s"] = 0.0
    assert rules_of_time.stamped(again(case)) == []
    case.evidence.log[2] = case.evidence.log[2]._replace(time_ms=6_000)
    assert [violation.message for violation in rules_of_time.stamped(again(case))] == [
        "stamped 6000, sent 3000 and answered 3100"
    ]


def test_no_clock_and_no_resume(case: Case) -> None:
    routelake = Actor(gateway="g", via="routelake")
    case.evidence.log.append(Logged(5, 60_000, Resume(actor=routelake, previous_event_time_ms=5_000)))
    assert rules_of_time.clocks_and_resumes(again(case)) == []
    case.evidence.log.append(Logged(6, 100_000, Clock(actor=routelake)))
    assert [violation.message for violation in rules_of_time.clocks_and_resumes(again(case))] == [
        "nobody wrote for 40000 ms, and no RESUME says so",
        "no CLOCK for 40000 ms",
    ]


def test_a_time_of_the_past(case: Case) -> None:
    """The registration of offset 2 came at 2,000 ms; a question for the time before shows the one before it."""
    as_of = Operation("as-of", ask=ROUTE.ask, by_time=True)
    good = {"as_of": "1970-01-01T00:00:01.999Z"}, {"as_of": "1970-01-01T00:00:02.000Z"}
    case.record.entries += [
        read_entry(8, 4.0, 1, asked=good[0], operation=as_of),
        read_entry(4, 4.1, 2, asked=good[1], operation=as_of),
    ]
    assert rules_of_time.the_past_stays(again(case)) == []
    case.record.entries.append(read_entry(4, 4.2, 1, asked=good[0], operation=as_of))
    assert [violation.message for violation in rules_of_time.the_past_stays(again(case))] == [
        "one moment, two answers",
        "not what was at 1970-01-01T00:00:01.999Z",
    ]


def test_not_modified_is_judged_as_what_it_repeats(case: Case) -> None:
    poll = replace(ROUTE, poll_s=1)
    case.record.entries += [
        read_entry(4, 3.2, 2, tag='"1-a"'),
        read_entry(4, 3.3, 2, tag='"1-a"', operation=poll, code=304, body=""),
    ]
    assert rules.equals_the_model(again(case)) == []
    case.record.entries[-2:] = [
        read_entry(8, 1.7, 1, tag='"1-a"'),
        read_entry(8, 3.3, 2, tag='"2-a"', operation=poll, code=304, body=""),
    ]
    assert [violation.message for violation in rules.equals_the_model(again(case))] == ["not the answer at offset 2"]


def test_another_gateway_may_be_behind(case: Case) -> None:
    case.record.entries.append(read_entry(8, 2.2, None, gateway=1))
    assert rules.never_back(again(case)) == []


def test_noticed_too_late(case: Case) -> None:
    case.evidence.log.append(Logged(5, 40_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    assert "before anybody noticed" in rules_of_time.expiry(again(case))[0].message


def test_an_expiry_that_the_tables_do_not_know(case: Case) -> None:
    case.evidence.log.append(Logged(5, 12_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    case.evidence.epochs = [Epoch(1, 5, 5, 60_000)]
    assert rules_of_time.expiry(again(case))[0].message == "b was silent at 10000, and the tables say nothing of it"


@pytest.mark.parametrize("table", ["topics", "brokers", "kv"])
def test_a_row_too_few(case: Case, table: str) -> None:
    getattr(case.evidence, table).popitem()
    (found,) = rules.tables_are_a_replay(again(case))
    assert "None in the table" in found.message


def test_not_the_replay(case: Case) -> None:
    case.evidence.replayed, case.evidence.head_differences = "group b", ["{}"]
    assert len(rules.tables_are_a_replay(again(case))) == 2


@pytest.mark.parametrize("well_s", [None, 31.0])
def test_not_well(case: Case, well_s: float | None) -> None:
    case.record.well_s = well_s
    assert len(rules.well_by_itself(again(case))) == 1

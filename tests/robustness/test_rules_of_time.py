# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about time, as in test_rules.py."""

from __future__ import annotations

import json

import msgspec
import pytest

from schemas.events import Actor, Clock, PutKvConfig, Resume
from tests.robustness import rules_of_time
from tests.robustness.answers import Expected
from tests.robustness.case import Case
from tests.robustness.evidence import Epoch, Evidence, Logged
from tests.robustness.hand_made import BROKER, ROUTE, again, good_case, read_entry, registration
from tests.robustness.operations import Operation
from tests.support import events


@pytest.fixture
def case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    return good_case()


def test_an_epoch_may_have_noticed_the_first_of_a_group_alone() -> None:
    """Deadlines at 9,000 and 9,500 ms, and an epoch that holds 9,800 and whose watermark is 9,200."""
    second = registration(8, 1)
    second = msgspec.structs.replace(second, broker_addr="10.9.0.2:10911", broker_id=1)
    log = [
        Logged(1, 1_000, registration(8, 1)),
        Logged(2, 1_500, second),
        Logged(3, 9_800, PutKvConfig(actor=events.actor(), namespace="n", key="k", value="v")),
        Logged(4, 15_000, Clock(actor=events.actor())),
    ]
    evidence = Evidence(log=log, epochs=[Epoch(1, 3, 3, 9_200), Epoch(2, 4, 4, 9_800)])
    expected = Expected(evidence, [ROUTE], [9_800])
    addresses = [
        {} if form is None else json.loads(form)["brokerDatas"][0]["brokerAddrs"]
        for form in expected.at_time(ROUTE, 9_800)
    ]
    assert sorted(addresses, key=len) == [{}, {"1": "10.9.0.2:10911"}, {"0": "10.9.0.1:10911", "1": "10.9.0.2:10911"}]


def test_two_answers_of_one_moment(case: Case) -> None:
    as_of = Operation("as-of", ask=ROUTE.ask)
    case.record.entries.append(read_entry(8, 4.0, 3, asked={"as_of": "1"}, operation=as_of))
    messages = [found.message for found in rules_of_time.the_past_stays(again(case))]
    assert messages == ["one moment, two answers", "not what epoch 1 was"]


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


def test_noticed_too_late(case: Case) -> None:
    case.evidence.log.append(Logged(5, 40_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    assert "before anybody noticed" in rules_of_time.expiry(again(case))[0].message


def test_an_expiry_that_the_tables_do_not_know(case: Case) -> None:
    case.evidence.log.append(Logged(5, 12_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    case.evidence.epochs = [Epoch(1, 5, 5, 60_000)]
    assert rules_of_time.expiry(again(case))[0].message == "b was silent at 10000, and the tables say nothing of it"

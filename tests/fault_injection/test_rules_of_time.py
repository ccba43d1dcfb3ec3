# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about time, as in test_rules.py."""

from __future__ import annotations

import json

import msgspec
import pytest

from dev.fault_injection import rules_of_expiry, rules_of_past, rules_of_time
from dev.fault_injection.answers import Expected
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Epoch, Evidence, Logged
from dev.fault_injection.hand_made import BROKER, ROUTE, again, good_case, put_entry, read_entry, registration
from dev.fault_injection.operations import Operation
from dev.fault_injection.record import Entry, Injected
from dev.support import events
from schemas.events import Actor, Clock, PutKvConfig, Resume


@pytest.fixture
def case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    return good_case()


def test_an_expiry_shows_after_its_deadline_in_the_epoch_that_has_it() -> None:
    """Deadlines at 9,000 and 9,500 ms; the epoch after the one that ends at 9,100 has both."""
    second = registration(8, 1)
    second = msgspec.structs.replace(second, broker_addr="10.9.0.2:10911", broker_id=1)
    log = [
        Logged(1, 1_000, registration(8, 1)),
        Logged(2, 1_500, second),
        Logged(3, 9_100, put_of_other()),
        Logged(4, 15_000, Clock(actor=events.actor())),
    ]
    evidence = Evidence(log=log, epochs=[Epoch(1, 3, 3, 0), Epoch(2, 4, 4, 15_000)])
    expected = Expected(evidence, [ROUTE], [9_050, 9_100, 9_500, 9_501])

    def ids(time_ms: int) -> list[str]:
        form = expected.at_time(ROUTE, time_ms)
        return [] if form is None else sorted(json.loads(form)["brokerDatas"][0]["brokerAddrs"])

    assert ids(9_050) == ["0", "1"], "no expiry is in the first epoch"
    assert ids(9_100) == ids(9_500) == ["1"]
    assert ids(9_501) == []


def test_two_answers_for_one_point_in_time_are_a_violation(case: Case) -> None:
    as_of = Operation("as-of", ask=ROUTE.ask)
    case.record.entries.append(read_entry(8, 4.0, 3, asked={"as_of": "1"}, operation=as_of))
    messages = [found.message for found in rules_of_past.the_past_stays(again(case))]
    assert messages == ["one moment, two answers", "not what epoch 1 was"]


def test_an_early_expiry_is_a_violation(case: Case) -> None:
    case.evidence.expired = [("b", 9_999, 1)]
    assert (
        rules_of_expiry.expiry(again(case))[0].message
        == "b expired at 9999 in epoch 1, though it was heard in time, or too soon"
    )


def test_expired_before_the_clock(case: Case) -> None:
    """A shard that goes by the end of its batch."""
    case.evidence.log[3] = case.evidence.log[3]._replace(time_ms=9_000)
    case.evidence.log.append(Logged(5, 10_500, put_of_other()))
    case.evidence.epochs, case.evidence.expired = [Epoch(1, 5, 5, 9_000)], [("b", 10_000, 1)]
    messages = [found.message for found in rules_of_expiry.expiry(again(case))]
    assert messages == ["b expired at 10000 in epoch 1, though it was heard in time, or too soon"]


def test_a_watermark_that_is_no_clock(case: Case) -> None:
    case.evidence.epochs = [Epoch(1, 4, 4, 4_999)]
    messages = [found.message for found in rules_of_expiry.expiry(again(case))]
    assert messages == ["the watermark of epoch 1 is 4999, and should be 5000"]


def put_of_other() -> PutKvConfig:
    return PutKvConfig(actor=events.actor(), namespace="n", key="other", value="v")


def test_expired_though_heard(case: Case) -> None:
    """By the log's times eight seconds went by, by the clients' clock one and a half.

    A tenth of the time is no violation for which the clock was set back when the broker was heard.
    """
    case.evidence.log[2] = case.evidence.log[2]._replace(time_ms=12_000)
    case.record.entries.append(read_entry(4, 5.0, 4))

    def early() -> list[str]:
        messages = [violation.message for violation in rules_of_expiry.expiry(again(case))]
        return [message for message in messages if "after it was heard" in message]

    too_soon = [f"b ({BROKER.addr}) expired at offset 4, 3.1 s after it was heard"]
    assert early() == too_soon
    for begun_s, ended_s, violations in ((-60.0, 3.0, []), (-60.0, 0.5, too_soon), (-20.0, 3.0, too_soon)):
        case.record.faults = [Injected("clock-back", begun_s, ended_s)]
        assert early() == violations


def test_stamped_with_another_time(case: Case) -> None:
    case.record.about["wall_ahead_s"] = 0.0
    assert rules_of_time.stamped(again(case)) == []
    case.evidence.log[2] = case.evidence.log[2]._replace(time_ms=6_000)
    assert [violation.message for violation in rules_of_time.stamped(again(case))] == [
        "stamped 6000, sent 3000 and answered 3100"
    ]


def test_a_missing_clock_or_resume_is_a_violation(case: Case) -> None:
    routelake = Actor(gateway="g", via="routelake")
    case.evidence.log.append(Logged(5, 60_000, Resume(actor=routelake)))
    assert rules_of_time.clocks_and_resumes(again(case)) == []
    case.evidence.log.append(Logged(6, 100_000, Clock(actor=routelake)))
    assert [violation.message for violation in rules_of_time.clocks_and_resumes(again(case))] == [
        "nobody wrote for 40000 ms, and no RESUME says so",
        "no CLOCK for 40000 ms",
    ]


def test_a_wrong_answer_for_a_point_in_time_is_a_violation(case: Case) -> None:
    """The registration of offset 2 came at 2,000 ms; a question for the time before shows the one before it."""
    as_of = Operation("as-of", ask=ROUTE.ask, by_time=True)
    good = {"as_of": "1970-01-01T00:00:01.999Z"}, {"as_of": "1970-01-01T00:00:02.000Z"}
    case.record.entries += [
        read_entry(8, 4.0, 1, asked=good[0], operation=as_of),
        read_entry(4, 4.1, 2, asked=good[1], operation=as_of),
    ]
    assert rules_of_past.the_past_stays(again(case)) == []
    case.record.entries.append(read_entry(4, 4.2, 1, asked=good[0], operation=as_of))
    assert [violation.message for violation in rules_of_past.the_past_stays(again(case))] == [
        "one moment, two answers",
        "not what was at 1970-01-01T00:00:01.999Z",
    ]


def test_a_late_expiry_is_a_violation(case: Case) -> None:
    case.evidence.log.append(Logged(5, 40_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    assert "before anybody noticed" in rules_of_expiry.expiry(again(case))[0].message


def test_an_expiry_that_the_tables_do_not_know(case: Case) -> None:
    case.evidence.log.append(Logged(5, 12_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    case.evidence.epochs = [Epoch(1, 5, 5, 12_000)]
    assert rules_of_expiry.expiry(again(case))[0].message == "b was silent at 10001, and epoch 1 says nothing of it"


def resume(offset: int, time_ms: int, gateway: str = "g", *, after_ms: int | None = None) -> Logged:
    actor = Actor(gateway=gateway, via="routelake")
    return Logged(offset, time_ms, Resume(actor=actor, after_ms=after_ms))


def clocks(case: Case) -> list[str]:
    return [violation.message for violation in rules_of_time.clocks_and_resumes(again(case))]


def test_a_resume_in_the_middle(case: Case) -> None:
    case.evidence.log.append(resume(5, 8_000))
    case.record.entries.append(put_entry(6, 8.0))
    assert clocks(case) == ["a RESUME 3000 ms after its gateway's last word, in the middle of all"]
    case.record.faults = [Injected("stop-log", 5.0, 7.0)]
    assert clocks(case) == []


def test_a_time_that_goes_back(case: Case) -> None:
    case.evidence.log.append(Logged(5, 4_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    assert clocks(case) == ["the log's time goes back"]


def past(code: int, kind: str, epoch: str, sent_s: float, gateway: int = 0) -> Entry:
    body = json.dumps({"type": f"urn:routelake:problem:{kind}", "code": None})
    as_of = Operation("as-of", ask=ROUTE.ask)
    return read_entry(
        0, sent_s, None, via="http", code=code, body=body, asked={"as_of": epoch}, operation=as_of, gateway=gateway
    )


def test_a_past_that_is_refused(case: Case) -> None:
    """A gateway that was never seen at an epoch may not know it yet."""

    def said() -> list[str]:
        return [violation.message for violation in rules_of_past.the_past_stays(again(case))]

    case.record.entries.append(past(404, "future-epoch", "1", 4.0, gateway=1))
    assert said() == []
    case.record.entries[-1] = past(404, "future-epoch", "1", 40.0, gateway=1)
    assert said() == ["epoch 1 had been shown"]
    case.record.entries[-1] = past(404, "future-epoch", "1", 4.0)
    assert said() == ["epoch 1 had been shown"]
    case.record.entries[-1] = past(410, "vacuumed", "1", 4.0)
    assert said() == ["410, and all of the past is kept"]
    case.record.entries[-1] = past(404, "before-history", "1", 4.0)
    assert said() == ["404, and all of the past is kept"]

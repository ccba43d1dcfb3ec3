# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about listeners and differences, as in test_rules.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Epoch
from dev.fault_injection.hand_made import again, good_case
from dev.fault_injection.record import Heard
from dev.fault_injection.rules_of_followers import differences, every_epoch_is_told


def heard(kind: str, time_s: float, epoch: int | None = None, after: int | None = None, **more: Any) -> Heard:
    return Heard(**{"worker": "f", "gateway": 0, "topic": "", "stream": 1, **more}, kind=kind, time_s=time_s, epoch=epoch, after=after)  # fmt: skip


def event(number: int, time_s: float, offset: int, topics: list[str], **more: Any) -> Heard:
    brokers = ["b"] if topics else []
    data = {"epoch": number, "offset": offset, "topics": topics, "brokers": brokers}
    return heard("epoch", time_s, number, data={**data, "topicCount": len(topics), "brokerCount": len(brokers)}, **more)


@pytest.fixture
def case() -> Case:
    """Epoch 1 ends with the first registration, 2 with the second, 3 with a KV entry. One listener heard them all."""
    case = good_case()
    case.evidence.epochs = [Epoch(1, 1, 1, 1_000), Epoch(2, 2, 2, 2_000), Epoch(3, 4, 4, 5_000)]
    both = frozenset({"T", "U"}), frozenset({"b"})
    case.evidence.changed = {1: both, 2: both, 3: (frozenset(), frozenset())}
    case.record.heard = [
        *(heard("begin", 1.0), heard("id", 1.1, 0), event(1, 1.2, 1, ["T", "U"]), event(2, 2.2, 2, ["T", "U"])),
        *(event(3, 5.2, 4, []), heard("id", 20.0, 3), heard("end", 21.0)),
    ]
    return case


def messages(case: Case) -> list[str]:
    return [violation.message for violation in every_epoch_is_told(again(case))]


def test_a_complete_stream_of_events_is_no_violation(case: Case) -> None:
    assert messages(case) == []
    judged = again(case)
    every_epoch_is_told(judged)
    assert judged.judged["event"] == 3


def test_an_epoch_that_is_missing(case: Case) -> None:
    del case.record.heard[3]
    assert messages(case) == ["epoch 3 after 2: something between them is missing"]


def test_an_epoch_twice_and_one_that_goes_back(case: Case) -> None:
    case.record.heard.insert(4, case.record.heard[3])
    assert messages(case) == ["epoch 2 after epoch 2"]
    case.record.heard[4] = heard("id", 2.3, 1)
    assert messages(case) == ["id 1 after epoch 2"]


def test_an_event_with_wrong_topics_or_offset_is_a_violation(case: Case) -> None:
    wrong = {**case.record.heard[3].data, "topics": ["T"], "topicCount": 1}
    case.record.heard[3] = replace(case.record.heard[3], data=wrong)
    assert [message.partition(" ")[0] for message in messages(case)] == ["names"]
    case.record.heard[3] = replace(case.record.heard[3], data={**wrong, "offset": 3, "topicCount": 2})
    assert len(messages(case)) == 3
    case.evidence.epochs.pop()
    assert "epoch 3 is not in routeCommitTable" in messages(case)


def test_a_late_event_is_a_violation(case: Case) -> None:
    silent: dict[str, Any] = {"worker": "a", "stream": 7}
    case.record.heard[:0] = [
        heard("begin", 2.0, after=1, **silent),
        heard("id", 2.1, 1, **silent),
        heard("end", 40.0, **silent),
    ]
    assert messages(case) == ["told up to 1, 10 s after 3 was there"]


def test_a_wrong_difference_between_epochs_is_a_violation(case: Case) -> None:
    key, row = {"topic": "T", "brokerName": "b"}, {"writeQueueNums": 8, "readQueueNums": 8, "perm": 6}
    rows = [
        {"tableName": "topicQueueTable", "key": {**key, "topic": topic}, "before": row, "after": {**row, "readQueueNums": 4, "writeQueueNums": 4}}
        for topic in ("T", "U")
    ]  # fmt: skip
    case.record.heard.append(heard("diff", 9.0, 2, 1, data={"differences": rows}))
    assert differences(again(case)) == []
    rows[0]["after"] = row
    assert "by the model from (8, 8, 6) to (4, 4, 6)" in differences(again(case))[0].message
    del rows[0]
    assert differences(again(case))[0].message.startswith("nothing of ('T', 'b')")
    case.record.heard[-1] = replace(case.record.heard[-1], epoch=7)
    assert differences(again(case))[0].message == "it is of an epoch that is not there"

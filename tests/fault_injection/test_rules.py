# SPDX-License-Identifier: Apache-2.0
"""Every rule of the judge but those about time, on a history written by hand that is good, and on the same with one thing wrong."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from dev.fault_injection import rules, rules_of_answers, rules_of_tables, rules_of_writes
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Epoch
from dev.fault_injection.hand_made import ROUTE, again, good_case, read_entry


@pytest.fixture
def case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    return good_case()


def test_a_correct_history_violates_no_rule(case: Case) -> None:
    assert [violation for rule in rules.RULES for violation in rule(case)] == []
    assert len(case.reads) == 7
    assert [offset for _, offset in case.places] == [1, 2, 3]


# --- (a) ---


def test_a_lost_event(case: Case) -> None:
    del case.evidence.log[1]
    (found, *_) = rules_of_writes.once(again(case))
    assert found.message == "acknowledged 1 times, 0 on the log"
    assert json.loads(found.cut[0])["operation"]["version"] == 2


def test_a_doubled_event(case: Case) -> None:
    case.evidence.log.append(case.evidence.log[2]._replace(offset=5))
    assert [found.message for found in rules_of_writes.once(again(case))] == ["sent 1 times, 2 on the log"]


def test_an_event_folded_twice_or_never_is_a_violation(case: Case) -> None:
    key = next(iter(case.evidence.changes))
    case.evidence.changes[key] = 2
    assert "folded 2 times" in rules_of_writes.once(again(case))[0].message
    case.evidence.changes = Counter({key: 1})
    assert rules_of_writes.once(again(case))[0].message == "applied, and offset 3 is not in routeChangeTable"


def test_a_gap_between_epochs_or_a_quarantined_record_is_a_violation(case: Case) -> None:
    case.evidence.epochs.append(Epoch(3, 4, 4, 5_000))
    case.evidence.quarantined = [2]
    assert len(rules_of_writes.once(again(case))) == 2


# --- (b), (c), (d) ---


def test_an_answer_of_another_offset_is_a_violation(case: Case) -> None:
    case.record.entries.append(read_entry(8, 4.0, 3))
    (found,) = rules_of_answers.equals_the_model(again(case))
    assert found.message == "not the answer at offset 3"
    assert any("it was right last at offset 1" in line for line in found.cut)
    assert any(line.startswith("log 2 at") for line in found.cut)


def test_an_answer_of_a_partial_epoch_is_a_violation(case: Case) -> None:
    committed = {"reads": "committed"}
    case.record.entries.append(read_entry(8, 4.0, 3, epoch=1, asked=committed))
    case.record.entries.append(read_entry(8, 4.0, 3, epoch=2, asked=committed))
    messages = [found.message for found in rules_of_answers.equals_the_model(again(case))]
    assert messages == ["not the answer of epoch 1", "there is no epoch 2"]


def test_a_stale_answer(case: Case) -> None:
    """Right once, but another client's write had been acknowledged since."""
    case.record.entries.append(read_entry(8, 2.2, None))
    assert rules_of_answers.equals_the_model(again(case)) == []
    (found,) = rules_of_answers.never_back(again(case))
    assert found.message == "older than offset 2, which had been acknowledged or seen before it was asked"


def test_a_write_that_waited_in_vain_for_the_live_view_is_only_durable(case: Case) -> None:
    """As if Kafka was killed between the append and the read of the event: the answer comes after ten seconds."""
    index = next(i for i, entry in enumerate(case.record.entries) if entry.operation.kind == "register" and i)
    slow = replace(case.record.entries[index], sent_s=2.0, done_s=12.1)
    case.record.entries[index:] = [slow, read_entry(8, 12.2, None)]
    assert rules_of_answers.never_back(again(case)) == []
    case.record.entries[index] = replace(slow, done_s=11.9)
    (found,) = rules_of_answers.never_back(again(case))
    assert found.message == "older than offset 2, which had been acknowledged or seen before it was asked"


def test_an_epoch_that_goes_back(case: Case) -> None:
    committed = {"reads": "committed"}
    case.record.entries.append(read_entry(4, 4.0, 3, epoch=0, asked=committed))
    (found,) = rules_of_answers.epochs_never_back(again(case))
    assert found.message == "epoch 0, though 1 had been shown before it was asked"
    case.record.entries[-1] = replace(case.record.entries[-1], gateway=1)
    assert rules_of_answers.epochs_never_back(again(case)) == []


def test_not_modified_is_judged_as_what_it_repeats(case: Case) -> None:
    poll = replace(ROUTE, poll_s=1)
    case.record.entries += [
        read_entry(4, 3.2, 2, tag='"1-a"'),
        read_entry(4, 3.3, 2, tag='"1-a"', operation=poll, code=304, body=""),
    ]
    assert rules_of_answers.equals_the_model(again(case)) == []
    case.record.entries[-2:] = [
        read_entry(8, 1.7, 1, tag='"1-a"'),
        read_entry(8, 3.3, 2, tag='"2-a"', operation=poll, code=304, body=""),
    ]
    assert [violation.message for violation in rules_of_answers.equals_the_model(again(case))] == [
        "not the answer at offset 2"
    ]


# --- (f), (g) ---


@pytest.mark.parametrize("table", ["topics", "brokers", "kv"])
def test_a_missing_row_of_a_table_is_a_violation(case: Case, table: str) -> None:
    getattr(case.evidence, table).popitem()
    (found,) = rules_of_tables.tables_are_a_replay(again(case))
    assert "None in the table" in found.message


def test_tables_that_differ_from_a_replay_are_a_violation(case: Case) -> None:
    case.evidence.replayed, case.evidence.live_view_differences = "group b", ["{}"]
    case.evidence.unverified, case.evidence.intervals = ["the chain is broken"], "a row"
    assert len(rules_of_tables.tables_are_a_replay(again(case))) == 4


@pytest.mark.parametrize("well_s", [None, 31.0])
def test_a_gateway_that_does_not_recover_is_a_violation(case: Case, well_s: float | None) -> None:
    case.record.rests = [2.0, well_s]
    assert len(rules_of_tables.well_by_itself(again(case))) == 1

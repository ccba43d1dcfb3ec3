# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about receipts, and about what a read says of itself, as in test_rules.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dev.fault_injection.case import Case
from dev.fault_injection.hand_made import BROKER, again, good_case, read_entry
from dev.fault_injection.operations import Operation
from dev.fault_injection.record import Entry
from dev.fault_injection.rules_of_headers import headers
from dev.fault_injection.rules_of_receipts import receipts


@pytest.fixture
def case() -> Case:
    """See `good_case`."""
    return good_case()


def messages(case: Case) -> list[str]:
    return [violation.message for violation in receipts(again(case))]


def of_headers(case: Case) -> list[str]:
    return [violation.message for violation in headers(again(case))]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"eventTime": "2001-01-01T00:00:00.000Z"}, "eventTime 2001-01-01T00:00:00.000Z, and 3000 on the log"),
        ({"epoch": 77}, "epoch 77 is not in routeCommitTable"),
        ({"outcome": "unchanged"}, "unchanged, and by the model something else is answered since"),
    ],
)
def test_a_wrong_answer_to_a_write_is_a_violation(case: Case, said: dict[str, Any], message: str) -> None:
    kv = Operation("kv", ask={"namespace": "n", "key": "k"})
    case.record.entries.append(Entry("r", "http", "127.0.0.1:3", kv, 4.0, 4.1, 200, '{"value":"v"}', offset=3, epoch=0))
    assert messages(case) == []
    put = case.record.entries[6]
    case.record.entries[6] = replace(put, body=json.dumps({**json.loads(put.body), **said}))
    assert messages(case) == [message]


def test_a_wrong_answer_to_a_registration_is_a_violation(case: Case) -> None:
    first = case.record.entries[0]
    case.record.entries[0] = replace(first, ext={"masterAddr": "6.6.6.6:1"})
    assert messages(case) == ["master ('6.6.6.6:1', None), and [(None, None)] by the model"]
    case.record.entries[0] = replace(first, body='{"table":{"lies":"1"}}')
    assert messages(case) == ['order topics {"table":{"lies":"1"}}']


def test_a_wrong_answer_to_a_version_query_is_a_violation(case: Case) -> None:
    asked = Operation("query-version", BROKER, version=2)
    answer = Entry("w", "remoting", "127.0.0.1:1", asked, 4.0, 4.1, 0, json.dumps(asked.data_version))
    case.record.entries.append(replace(answer, ext={"changed": "false"}))
    assert messages(case) == []
    case.record.entries[-1] = replace(answer, ext={"changed": "true"})
    assert [message.partition(",")[0] for message in messages(case)] == ["changed is true"]
    old = replace(asked, version=1)
    case.record.entries[-1] = replace(answer, body=json.dumps(old.data_version), ext={"changed": "true"})
    assert messages(case)[0].startswith("version ")


def test_a_wrong_epoch_or_offset_of_an_answer_is_a_violation(case: Case) -> None:
    committed = {"reads": "committed"}
    assert of_headers(case) == []
    case.record.entries += [
        read_entry(4, 4.0, 3, epoch=None, asked=committed),
        read_entry(4, 4.0, 1, epoch=1, asked=committed),
        read_entry(4, 4.3, 3, epoch=77),
        read_entry(4, 4.4, 4, epoch=1, asked={**committed, "wait_for": "5"}),
    ]
    assert of_headers(case) == [
        "neither epoch nor offset, or one of them alone",
        "offset 1, and epoch 1 goes up to 4",
        "there is no epoch 77",
        "offset 4, and 5 was to be waited for",
    ]

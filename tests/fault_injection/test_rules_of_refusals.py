# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about refusals and silence, as in test_rules.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.fault_injection.case import Case
from dev.fault_injection.hand_made import again, good_case, put_entry, read_entry
from dev.fault_injection.record import Entry, Injected
from dev.fault_injection.rules_of_refusals import refusals


@pytest.fixture
def case() -> Case:
    """See `good_case`."""
    return good_case()


def messages(case: Case) -> list[str]:
    return [violation.message for violation in refusals(again(case))]


def refused_read(**more: object) -> Entry:
    return replace(read_entry(0, 13.0, 3, code=503, body="{}"), **more)  # type: ignore[arg-type]


def test_an_answer_with_another_error_than_a_refusal_is_a_violation(case: Case) -> None:
    case.record.faults = [Injected("kill-gateway", 3.0, 3.1)]
    case.record.entries += [
        refused_read(),
        read_entry(0, 3.8, None, code=2, body=""),
        read_entry(0, 3.9, 3, code=500, body="{}"),
        read_entry(0, 3.9, None, code=1, body=""),
    ]
    assert messages(case) == ["answered with 500", "answered with 1"]


def test_a_refusal_without_a_fault_is_a_violation(case: Case) -> None:
    """No client is refused because the fold is away, or long after the last fault."""
    nothing = refused_read(code=None, error="TimeoutError")
    case.record.entries += [refused_read(), nothing, replace(put_entry(3, 13.0), code=503)]
    wanted = ["refused read, and no fault is the reason", "unanswered read, and no fault is the reason"]
    wanted.append("refused write, and no fault is the reason")
    assert messages(case) == wanted
    case.record.faults = [Injected("kill-fold", 12.0, 12.1)]
    assert messages(case) == wanted
    case.record.faults = [Injected("slow-disk", 10.0, 12.0)]
    assert messages(case) == wanted[:2], "which is no reason for a read"
    case.record.faults = [Injected("kill-gateway", 12.0, 12.1)]
    assert messages(case) == []
    case.record.entries[-3:] = [refused_read(sent_s=50.0, done_s=50.1)]
    assert messages(case) == wanted[:1]


def test_an_answer_with_the_code_of_another_kind_is_a_violation(case: Case) -> None:
    case.record.entries.append(read_entry(0, 4.0, None, code=22, body=""))
    assert messages(case) == ["answered with 22"]
    case.record.entries[-1] = read_entry(0, 4.0, None, code=17, body="")
    assert messages(case) == []

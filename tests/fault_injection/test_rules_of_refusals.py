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


def test_an_error_that_is_no_refusal(case: Case) -> None:
    case.record.faults = [Injected("kill-gateway", 3.0, 3.1)]
    case.record.entries += [
        refused_read(),
        read_entry(0, 3.8, None, code=2, body=""),
        read_entry(0, 3.9, 3, code=500, body="{}"),
        read_entry(0, 3.9, None, code=1, body=""),
    ]
    assert messages(case) == ["answered with 500", "answered with 1"]


def test_without_a_reason(case: Case) -> None:
    """Nobody is refused because the fold is away, or long after the last fault."""
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


def test_a_gateway_that_starts_while_its_disk_fails_is_away_for_longer(case: Case) -> None:
    """It ends, and is started again; a gateway that is there answers reads whatever its disk does."""
    case.record.entries.append(refused_read(sent_s=50.0, done_s=50.1))
    disk = Injected("disk-full", 28.0, 30.0)
    wanted = ["refused read, and no fault is the reason"]
    case.record.faults = [Injected("restart", 10.0, 12.0)]
    assert messages(case) == wanted
    case.record.faults = [disk]
    assert messages(case) == wanted
    case.record.faults = [disk, Injected("restart", 10.0, 12.0)]
    assert messages(case) == []
    case.record.faults = [disk, Injected("restart", -20.0, -10.0)]
    assert messages(case) == wanted
    case.record.faults = [disk, Injected("kill-second", 10.0, 12.0)]
    assert messages(case) == wanted, "the other one was away"


def test_of_the_other_gateway(case: Case) -> None:
    case.record.faults = [Injected("kill-second", 12.0, 12.1)]
    case.record.entries.append(refused_read(gateway=1))
    assert messages(case) == []
    case.record.entries.append(refused_read())
    assert messages(case) == ["refused read, and no fault is the reason"]


def test_durable_alone(case: Case) -> None:
    """202 says that the head cannot follow the log: for a while, after a fault."""
    case.record.entries[6] = replace(case.record.entries[6], code=202, visible=False)
    assert messages(case) == ["write not shown, and no fault is the reason"]
    case.record.faults = [Injected("disk-full", 2.0, 3.0)]
    assert messages(case) == []


def test_who_waits_for_the_fold_may_wait_in_vain(case: Case) -> None:
    case.record.entries.append(refused_read(asked={"reads": "committed", "wait_for": "3"}))
    assert messages(case) == []


def test_one_way_is_not_answered(case: Case) -> None:
    one_way = replace(case.record.entries[0].operation, one_way=True)
    case.record.entries.append(replace(case.record.entries[0], operation=one_way, code=None))
    assert messages(case) == []


def test_none_by_the_code_of_another_kind(case: Case) -> None:
    case.record.entries.append(read_entry(0, 4.0, None, code=22, body=""))
    assert messages(case) == ["answered with 22"]
    case.record.entries[-1] = read_entry(0, 4.0, None, code=17, body="")
    assert messages(case) == []

# SPDX-License-Identifier: Apache-2.0
"""A query ends when it is interrupted, at its next check or by the name that it has."""

from __future__ import annotations

import pytest

from lake.delta.query import Interrupt, InterruptedQueryError, check_interrupted, current_interrupt


def test_a_query_without_a_deadline_finishes() -> None:
    def work() -> int:
        check_interrupted()
        return 7

    current_interrupt().check()
    assert work() == Interrupt().run(work) == 7


def test_a_query_ends_at_its_next_check() -> None:
    interrupt = Interrupt()

    def work() -> None:
        assert current_interrupt() is interrupt
        interrupt.set()
        check_interrupted()

    with pytest.raises(InterruptedQueryError):
        interrupt.run(work)
    with pytest.raises(InterruptedQueryError):
        interrupt.run(lambda: pytest.fail("it was to end before"))
    check_interrupted()  # outside of that work nothing ends


def test_a_query_without_checks_names_its_interrupt() -> None:
    interrupt, ended = Interrupt(), list[int]()
    with interrupt.calls(lambda: ended.append(1)):
        interrupt.set()
    assert ended == [1]
    interrupt.set()
    assert ended == [1], "only within"
    with pytest.raises(InterruptedQueryError), interrupt.calls(lambda: ended.append(2)):
        pytest.fail("it was to end before")

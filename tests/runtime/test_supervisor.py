# SPDX-License-Identifier: Apache-2.0
"""Which end of a child is the end of all."""

from __future__ import annotations

import sys

import pytest

from runtime.process import EXIT_FAILED, EXIT_SETUP
from runtime.supervisor import Child, Supervisor


@pytest.mark.parametrize(
    ("code", "ran_s", "restarts", "ends_with"),
    [
        (EXIT_SETUP, 0.0, 0, EXIT_SETUP),  # it cannot start as things are
        (EXIT_SETUP, 61.0, 0, None),  # it could: gateways go on, and it is tried again
        (EXIT_SETUP, 0.0, 1, None),
        (EXIT_FAILED, 0.0, 0, None),
    ],
)
def test_a_child_that_ends(code: int, ran_s: float, restarts: int, ends_with: int | None) -> None:
    child = Child("fold", [sys.executable, "-c", f"raise SystemExit({code})"], restarts=restarts)
    supervisor = Supervisor([child], "http://127.0.0.1:1/readyz", "ready")
    child.start()
    assert child.process is not None and child.process.stdin is not None
    child.process.wait(60)
    child.process.stdin.close()
    child.started_s -= ran_s
    supervisor._watch(child)
    assert child.process is None
    if ends_with is None:
        assert not supervisor._stop.wait(0)
        assert child.restart_at_s > child.started_s
    else:
        assert supervisor._stop.wait(0)
        assert supervisor._exit_code == ends_with

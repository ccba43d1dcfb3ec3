# SPDX-License-Identifier: Apache-2.0
"""Values for a child process."""

from __future__ import annotations

import io
import traceback
from multiprocessing import Pipe
from typing import Any

import pytest

from runtime.children import send


def test_the_other_end_reads_what_was_sent() -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        send(ours, ("a", 1))
        assert theirs.recv() == ("a", 1)


def test_a_failed_send_leaves_no_view_that_python_crashes_on() -> None:
    """Python 3.12.1 crashes when it collects a BytesIO of which there is a view."""
    ours, theirs = Pipe()
    theirs.close()
    with ours, pytest.raises(BrokenPipeError) as caught:
        send(ours, ("a", 1))
    values: list[Any] = [
        value for frame, _ in traceback.walk_tb(caught.value.__traceback__) for value in frame.f_locals.values()
    ]
    views = [value for value in values if isinstance(value, memoryview)]
    assert views
    assert not any(isinstance(view.obj, io.BytesIO) for view in views)

# SPDX-License-Identifier: Apache-2.0
"""The model gives the answers that the examples expect. The real NameServer is asked in tests/differential."""

from __future__ import annotations

from typing import Any

import pytest

from dev.histories.steps import Advance, CloseChannel
from dev.model.namesrv import NameServerModel
from dev.model.settings import Settings
from dev.model.wire import canonical
from tests.examples.all import EXAMPLES
from tests.examples.parts import Example, Expect


def play(example: Example, model: NameServerModel) -> None:
    """Play an example on the model and check what it expects."""
    now_ms = 0
    for step in example.steps:
        if isinstance(step, Advance):
            now_ms += step.ms
            model.scan(now_ms)
        elif isinstance(step, CloseChannel):
            model.close_channel(step.channel, now_ms)
        else:
            send, expected = (step.step, step.answer) if isinstance(step, Expect) else (step, {})
            request = send.request()
            answer = canonical(request, model.handle(request, now_ms, send.channel))
            for path, value in expected.items():
                assert _at(answer, path) == value, f"{send} answered {answer}"


def _at(answer: Any, path: str) -> Any:
    for key in path.split("."):
        answer = None if answer is None else answer.get(key)
    return answer


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    example = EXAMPLES[name]
    play(example, NameServerModel(Settings(**vars(example.settings))))

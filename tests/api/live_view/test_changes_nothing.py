# SPDX-License-Identifier: Apache-2.0
"""A gateway calls a registration unchanged at a view where the state machine calls it so in the whole state."""

from __future__ import annotations

import random

import msgspec
import pytest

from dev.support.generated_logs import ASSORTMENT, written
from nameserver.state_machine.registration import register
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import At, BrokerGroup, RouteState
from nameserver.view.conversions import changes_nothing
from schemas.events import RegisterBroker
from schemas.outcomes import UNCHANGED
from tests.api.live_view.test_fold import view_at

REGISTRATIONS = [event for event in ASSORTMENT if isinstance(event, RegisterBroker)]


@pytest.mark.parametrize("seed", range(8))
def test_it_is_what_the_state_machine_says(seed: int) -> None:
    rng = random.Random(seed)
    history = [(1, entry) for _ in range(12) for entry in rng.sample(REGISTRATIONS, 2)]
    records = written(history)
    state, view = replay(RouteState(), records), view_at(records)
    found = set()
    for event in REGISTRATIONS:
        topicless = msgspec.structs.replace(event, topic_config_table=None)
        group = state.groups.get(event.broker_name) or BrokerGroup(event.broker_name)
        expected = register(group, topicless, At(len(records) + 1, state.now_ms))[1].verdict == UNCHANGED
        assert changes_nothing(view, topicless) is expected, event
        found.add(expected)
    assert found == {True, False}

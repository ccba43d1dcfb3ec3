# SPDX-License-Identifier: Apache-2.0
"""Doors for the tests of the HTTP door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.doors import Door, broker


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One door for all tests that bring their own names."""
    door = Door(tmp_path_factory.mktemp("door"))
    yield door
    door.close()


@pytest.fixture(scope="session")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A door whose log only moves when something is accepted; nothing folds it."""
    door = Door(tmp_path_factory.mktemp("still"), fold=False, clock_interval_s=3600.0, visible_wait_s=0.0)
    yield door
    door.close()


@pytest.fixture
def make_door(tmp_path: Path) -> Iterator[Any]:
    """Doors with settings of their own."""
    made: list[Door] = []

    def make(**settings: Any) -> Door:
        made.append(Door(tmp_path / f"door-{len(made)}", **settings))
        return made[-1]

    yield make
    for door in made:
        door.close()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A door whose view moves only when a test writes."""
    door = Door(tmp_path_factory.mktemp("quiet"), clock_interval_s=3600.0)
    assert door.register(broker()).json()["visible"]
    door.settled()
    yield door
    door.close()

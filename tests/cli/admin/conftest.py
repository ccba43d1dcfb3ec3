# SPDX-License-Identifier: Apache-2.0
"""The scripted world, once for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.support.recorder import Recorder
from tests.cli.admin.commands import TOPIC_LIST_FILE
from tests.cli.admin.world import start_world


@pytest.fixture(autouse=True)
def _no_name_server_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.fixture(scope="module")
def started_world() -> Iterator[Recorder]:
    with Recorder() as recorder:
        start_world(recorder)
        yield recorder


@pytest.fixture
def world(started_world: Recorder) -> Recorder:
    """Nothing recorded yet."""
    started_world.take()
    return started_world


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """For servers of the test's own."""
    with Recorder() as own:
        yield own


@pytest.fixture
def topics_file(tmp_path: Path) -> str:
    file = tmp_path / "topics.json"
    file.write_text(TOPIC_LIST_FILE)
    return str(file)

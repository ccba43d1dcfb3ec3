# SPDX-License-Identifier: Apache-2.0
"""Peers that several files use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.live import LiveRoutelake


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRoutelake]:
    """A routelake for tests that bring their own names."""
    live = LiveRoutelake(tmp_path_factory.mktemp("lake"))
    yield live
    live.close()


@pytest.fixture
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRoutelake]:
    """A routelake of one test's own, to be stopped and started."""
    live = LiveRoutelake(tmp_path_factory.mktemp("lake"))
    yield live
    live.close()

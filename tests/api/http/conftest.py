# SPDX-License-Identifier: Apache-2.0
"""Gateways for the tests of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.support.http_api import HttpApi, broker
from security.quotas import Quotas


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    """One gateway for the tests of a file, which bring their own names. It takes processor time while it lives."""
    api = HttpApi(tmp_path_factory.mktemp("api"))
    yield api
    api.close()


@pytest.fixture(scope="module")
def unfolded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    """A gateway with a log that moves only when an event is accepted. No fold runs."""
    api = HttpApi(tmp_path_factory.mktemp("unfolded"), fold=False, clock_interval_s=3600.0)
    yield api
    api.close()


@pytest.fixture
def make_api(tmp_path: Path) -> Iterator[Any]:
    """Gateways with settings of their own."""
    made: list[HttpApi] = []

    def make(**settings: Any) -> HttpApi:
        made.append(HttpApi(tmp_path / f"api-{len(made)}", **settings))
        return made[-1]

    yield make
    for api in made:
        api.close()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    """A gateway with a view that moves only when a test writes. Refused requests of one test use no quota of the next."""
    quotas = Quotas(refused_proofs_per_min=None)
    api = HttpApi(tmp_path_factory.mktemp("quiet"), clock_interval_s=3600.0, quotas=quotas)
    assert api.register(broker()).json()["visible"]
    api.settled()
    yield api
    api.close()

# SPDX-License-Identifier: Apache-2.0
"""request-cost knows every request code and endpoint, and measures a real gateway."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from dev.benchmarks import request_cost
from dev.benchmarks.harness.bench import Bench
from dev.support.local import LocalLake
from security.roles import NEEDED


def test_every_code_and_endpoint_is_measured(tmp_path: Path) -> None:
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway(http_port=0) as gateway:
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}/openapi.json") as found:
            paths = json.load(found)["paths"]
        handled = frozenset(map(int, gateway.parts.handler._handlers))
    assert request_cost.missing(paths, handled | frozenset(map(int, NEEDED))) == []
    assert request_cost.missing({"/v1/new": {"get": {}}}, frozenset({999})) == ["999", "GET /v1/new"]


def test_requests_are_small() -> None:
    assert {case.name for case in request_cost.cases() if len(case.data) > request_cost.LARGEST_BYTES + 1024} == set()


@pytest.mark.deep
def test_it_measures(tmp_path: Path) -> None:
    said: list[str] = []
    result = request_cost.run(Bench(folder=tmp_path, rounds=1, quick=True, say=said.append))
    assert [figure.unit for figure in result.figures] == ["ms", "MiB", "ms"]
    assert all(figure.value is not None for figure in result.figures)
    assert any("103" in line for line in said)

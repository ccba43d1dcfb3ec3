# SPDX-License-Identifier: Apache-2.0
"""Liveness and readiness: every reason has a name, and routes are served all the same."""

from __future__ import annotations

import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from api.gateway import Reads
from api.http.shapes import HealthShape, ReadyShape
from api.view.follower import FollowerStatus
from tests.support.http_api import HttpApi, broker
from tests.support.loops import until


def ready(api: HttpApi, status: int) -> ReadyShape:
    answer = api.get("/readyz")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = ReadyShape.model_validate(answer.json())
    assert set(found.checks) == {"view", "log", "fold", "head"}
    assert found.ready == (status == 200) == all(check.ok for check in found.checks.values())
    assert all((check.reason is None) == check.ok for check in found.checks.values())
    return found


def reasons(found: ReadyShape) -> dict[str, str | None]:
    return {name: check.reason for name, check in found.checks.items() if not check.ok}


def test_alive(unfolded: HttpApi) -> None:
    found = HealthShape.model_validate(unfolded.get("/healthz").json())
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found.version == unfolded.get("/openapi.json").json()["info"]["version"] == project["version"]


def test_ready_when_everything_is_there(make_api: Any) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz").status_code == 200)  # the fold has come to this gateway's start
    ready(api, 200)
    api.register(broker())
    api.settled()
    assert ready(api, 200).epoch >= 1


def test_a_gateway_at_the_head_is_ready_without_a_fold(unfolded: HttpApi) -> None:
    answer = unfolded.get("/readyz")
    found = ReadyShape.model_validate(answer.json())
    assert answer.status_code == 200 and found.ready
    assert reasons(found) == {"fold": "the fold has not run on this lake yet"}


def test_not_ready_before_the_fold_ever_ran(make_api: Any) -> None:
    found = ready(make_api(fold=False, reads=Reads.COMMITTED), 503)
    assert reasons(found) == {"fold": "the fold has not run on this lake yet"}
    assert (found.epoch, found.offset) == (0, -1)


def _ms() -> int:
    return round(time.time() * 1000)


def write_status(api: HttpApi, **fields: Any) -> None:
    path = api.lake_dir / "fold-status.json"
    found = json.loads(path.read_bytes()) | fields
    path.write_text(json.dumps(found))


def test_not_ready_when_the_fold_is_silent_but_routes_are_served(make_api: Any) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    write_status(api, timeMillis=_ms() - 31_000)
    until(lambda: api.gateway.fold.status is not None and api.gateway.fold.status.time_ms < _ms() - 30_000)
    assert "the fold was last heard of" in str(reasons(ready(api, 503))["fold"])
    assert api.get("/v1/topics/orders/route").status_code == 200


def test_a_fold_that_failed_says_why(make_api: Any) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    write_status(api, timeMillis=_ms() - 60_000)
    failure = {"timeMillis": _ms() - 5_000, "error": "Python worker failed to connect back.", "details": "..."}
    (api.lake_dir / "fold-failure.json").write_text(json.dumps(failure))
    until(lambda: api.gateway.fold.failure is not None)
    said = str(reasons(ready(api, 503))["fold"])
    found = re.search(r"it failed (\d+) s ago: Python worker failed to connect back\.", said)
    assert found is not None and int(found[1]) >= 5, said
    write_status(api, timeMillis=_ms())  # it has gone on since
    until(lambda: api.gateway.fold.failure is None)
    until(lambda: api.get("/readyz").status_code == 200)


def test_a_fold_that_hears_a_clock_each_minute_is_not_dead_after_half_a_minute(make_api: Any) -> None:
    """scanNotActiveBrokerInterval is how often a quiet log gives the fold something to report."""
    api: HttpApi = make_api(clock_interval_s=60.0, reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    for age_ms, status in ((100_000, 200), (130_000, 503)):
        write_status(api, timeMillis=_ms() - age_ms)
        until(lambda: api.get("/readyz").status_code == status)  # noqa: B023


def status_of(api: HttpApi, **fields: Any) -> FollowerStatus:
    found = api.gateway.follower.status()
    return FollowerStatus(**{name: getattr(found, name) for name in found.__struct_fields__} | fields)


def test_not_ready_when_the_tables_cannot_be_read(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz").status_code == 200)
    failing = status_of(api, failing=True, last_error="FileNotFoundError: gone")
    monkeypatch.setattr(api.gateway.follower, "status", lambda: failing)
    assert reasons(ready(api, 503)) == {"view": "the tables cannot be read: FileNotFoundError: gone"}


def test_not_ready_when_the_view_lags(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.fold.pause()
    write_status(api, epoch=1000, timeMillis=_ms())
    until(lambda: api.gateway.fold.status is not None and api.gateway.fold.status.epoch == 1000)
    assert "the fold at 1000" in str(reasons(ready(api, 503))["view"])
    api.fold.resume()


def test_not_ready_when_the_fold_is_behind_the_start(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz").status_code == 200)
    monkeypatch.setattr(api.gateway, "started_offset", 10_000_000)
    assert "to go to the start of this gateway" in str(reasons(ready(api, 503))["fold"])

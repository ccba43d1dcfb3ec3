# SPDX-License-Identifier: Apache-2.0
"""Liveness and readiness: every reason has a name; only what is wrong with this gateway alone makes it unready."""

from __future__ import annotations

import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from api.http.answers import FoldHealthAnswer, HealthAnswer, ReadyAnswer
from api.http.settings import HttpSettings
from api.settings.gateway import Reads
from dev.support.http_api import HttpApi, broker, parsed, problem
from dev.support.loops import until


def ready(api: HttpApi, strict: int, lenient: int = 200) -> ReadyAnswer:
    """Check the status of /readyz?strict, and that of /readyz."""
    assert api.get("/readyz").status_code == lenient
    answer = api.get("/readyz?strict")
    assert answer.status_code == strict, answer.text
    assert ("retry-after" in answer.headers) == (strict == 503)
    assert answer.headers["content-type"] == "application/json"
    found = parsed(answer, ReadyAnswer)
    assert set(found.checks) == {"view", "eventLog", "fold", "liveView", "clock"}
    assert found.ready == (strict == 200) == all(check.ok for check in found.checks.values())
    assert all((check.reason is None) == check.ok for check in found.checks.values())
    assert fold_health(api).ok == found.checks["fold"].ok
    return found


def fold_health(api: HttpApi) -> FoldHealthAnswer:
    answer = api.get("/healthz/fold")
    found = parsed(answer, FoldHealthAnswer)
    assert answer.status_code == (200 if found.ok else 503)
    assert answer.headers["cache-control"] == "no-store"
    assert (found.reason is None) == found.ok
    return found


def reasons(found: ReadyAnswer) -> dict[str, str | None]:
    return {name: check.reason for name, check in found.checks.items() if not check.ok}


def test_alive(unfolded: HttpApi) -> None:
    found = parsed(unfolded.get("/healthz"), HealthAnswer)
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found.version == unfolded.get("/openapi.json").json()["info"]["version"] == project["version"]


def test_ready_when_everything_is_there(make_api: Any) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz?strict").status_code == 200)  # the fold has come to this gateway's start
    ready(api, 200)
    api.register(broker())
    api.settled()
    assert ready(api, 200).epoch >= 1


@pytest.mark.parametrize("reads", Reads)
def test_ready_without_a_fold_whatever_is_read(make_api: Any, reads: Reads) -> None:
    """A fold that restarts takes no gateway out: routes are answered."""
    api: HttpApi = make_api(fold=False, reads=reads)
    found = ready(api, 503)
    assert reasons(found) == {"fold": "the fold has not run on this lake yet"}
    if reads is Reads.COMMITTED:
        assert (found.epoch, found.offset, found.routes_age_seconds) == (0, -1, None)
    lag = fold_health(api).lag
    assert (lag.epochs, lag.seconds) == (0, None) and lag.events > 0


def test_a_log_that_refuses_appends_takes_no_gateway_out(make_api: Any) -> None:
    """It is the same log for all of them, and brokers that are refused go to another NameServer by themselves."""
    api: HttpApi = make_api(fold=False)
    api.register(broker())
    api.log.close()
    assert api.register(broker()).status_code == 503
    assert api.get("/v1/topics/orders/route").status_code == 200
    assert "appends to the event log fail" in str(reasons(ready(api, 503))["eventLog"])


def test_a_gateway_that_holds_its_routes_back_is_not_ready(make_api: Any) -> None:
    """Else clients would get the answer that there are no topics."""
    api: HttpApi = make_api(need_wait_for_service=True, wait_seconds_for_service=3_600)
    until(lambda: api.get("/readyz").json()["checks"]["fold"]["ok"])
    assert "needWaitForService" in str(reasons(ready(api, 503, lenient=503))["view"])


def test_strict_is_true_false_or_nothing_at_all(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False)
    for query, status in (
        ("", 200),
        ("?strict", 503),
        ("?strict=TRUE", 503),
        ("?strict=1", 503),
        ("?strict=false", 200),
    ):
        assert api.get(f"/readyz{query}").status_code == status, query
    for query in ("?strict=yes", "?strict&strict"):
        problem(api.get(f"/readyz{query}"), 400, "bad-parameter")


def test_routes_say_how_old_they_are(make_api: Any) -> None:
    """At the head as old as the last CLOCK; committed, as what the fold last said."""
    live_view: HttpApi = make_api(fold=False)
    until(lambda: live_view.get("/readyz").json().get("routesAgeSeconds", 60.0) < 30)
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    until(lambda: api.gateway.committed.event.age_s is not None)
    api.gateway.committed.event._came_s -= 1_000.0
    write_status(api, timeMillis=_ms())
    until(lambda: api.get("/readyz").json()["routesAgeSeconds"] < 900)
    write_status(api, timeMillis=_ms(), epoch=10)  # an epoch that is not here yet: the event time counts
    until(lambda: api.get("/readyz").json()["routesAgeSeconds"] >= 1_000)


def _ms() -> int:
    return round(time.time() * 1000)


def write_status(api: HttpApi, **fields: Any) -> None:
    path = api.lake_dir / "fold-status.json"
    found = json.loads(path.read_bytes()) | fields
    path.write_text(json.dumps(found))


def test_not_strictly_ready_when_the_fold_is_silent_but_routes_are_served(make_api: Any) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    silent_for(api, 31.0)
    assert "the last status of the fold is" in str(reasons(ready(api, 503))["fold"])
    assert api.get("/v1/topics/orders/route").status_code == 200


def silent_for(api: HttpApi, seconds: float) -> None:
    """Nothing was heard of the fold for so long; it must have stopped."""
    last_ms = json.loads((api.lake_dir / "fold-status.json").read_bytes())["timeMillis"]
    until(lambda: api.gateway.fold.status is not None and api.gateway.fold.status.time_ms == last_ms)
    api.gateway.fold._status_came._came_s = time.monotonic() - seconds


@pytest.mark.parametrize("apart_ms", [60_000, -60_000, 86_400_000, -86_400_000])
def test_clocks_of_fold_and_gateway_may_differ(make_api: Any, apart_ms: int) -> None:
    """A fold that is alive is heard, and one that is dead is not, whatever its clock says."""
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    for _ in range(2):
        write_status(api, timeMillis=_ms() + apart_ms)
        before = api.gateway.fold.status
        until(lambda: api.gateway.fold.status is not before)  # noqa: B023
    until(lambda: api.get("/healthz/fold").status_code == 200)
    assert api.get("/healthz/fold").json()["lag"]["seconds"] < 30
    failure = {"timeMillis": _ms() + apart_ms - 1, "error": "gone", "details": "..."}
    (api.lake_dir / "fold-failure.json").write_text(json.dumps(failure))
    until(lambda: api.get("/healthz/fold").status_code == 503)
    write_status(api, timeMillis=_ms() + apart_ms - 3_600_000)  # its clock was put right
    until(lambda: api.get("/healthz/fold").status_code == 200)
    silent_for(api, 31.0)
    assert api.get("/healthz/fold").status_code == 503


def test_event_time_that_is_ahead_is_told(make_api: Any) -> None:
    api: HttpApi = make_api()
    until(lambda: api.get("/readyz?strict").status_code == 200)
    api.fold.stop()  # its CLOCK records are events, each with a time of its own
    assert api.loop.run(api.gateway.live_view.wait_for(api.log.end().next_offset - 1, 30))
    api.gateway.live_view.event._came_s -= 7_200.0
    assert "ahead of this machine's clock" in str(reasons(ready(api, 503))["clock"])
    text = api.get("/metrics").text
    assert re.search(r"^routelake_event_time_ahead_seconds 7[12]\d\d\.", text, re.MULTILINE), text


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
    assert found is not None and int(found[1]) < 60, said
    write_status(api, timeMillis=_ms())  # it has gone on since
    until(lambda: api.gateway.fold.failure is None)
    until(lambda: api.get("/readyz?strict").status_code == 200)


TRACE = (
    "Py4JJavaError: An error occurred.\n: java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2\n"
    + ("\tat org.apache.ivy.Ivy$1.resolve(Ivy.java:48)\n\tat jdk.internal.reflect.Method.<init>(Native Method)\n" * 50)
)


def test_a_reason_is_one_line(make_api: Any) -> None:
    """Some kB of Java's frames tell a probe nothing."""
    api: HttpApi = make_api(fold=False)
    api.lake_dir.mkdir(parents=True, exist_ok=True)
    for error, says in ((TRACE, "basedir must be absolute: ?/.ivy2"), ("x" * 9_000, "xxx..."), ("a\nb\n\nc", "a b c")):
        failure = {"timeMillis": _ms() - 5_000, "error": error, "details": "..."}
        (api.lake_dir / "fold-failure.json").write_text(json.dumps(failure))
        until(lambda: says in str(fold_health(api).reason))  # noqa: B023
        for reason in map(str, (fold_health(api).reason, api.get("/readyz").json()["checks"]["fold"]["reason"])):
            assert len(reason) < 500 and "\n" not in reason and ".java:" not in reason


def test_without_a_token_health_says_little_where_reads_need_one(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(tokens={"a": "0123456789abcdef"}, protect_reads=True))
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json()["checks"]["fold"]["reason"].startswith("see the gateway's log")
    token = {"authorization": "Bearer 0123456789abcdef"}
    assert "version" in api.get("/healthz", headers=token).json()
    assert "the fold has not run" in api.get("/readyz", headers=token).json()["checks"]["fold"]["reason"]


def test_a_fold_that_hears_a_clock_each_minute_is_not_dead_after_half_a_minute(make_api: Any) -> None:
    """scanNotActiveBrokerInterval is how often a quiet log gives the fold something to report."""
    api: HttpApi = make_api(clock_interval_s=60.0, reads=Reads.COMMITTED)
    api.register(broker())
    api.settled()
    api.fold.stop()
    for age_s, status in ((100.0, 200), (130.0, 503)):
        silent_for(api, age_s)
        until(lambda: api.get("/readyz?strict").status_code == status)  # noqa: B023
        until(lambda: api.get("/healthz/fold").status_code == status)  # noqa: B023


def test_not_strictly_ready_when_the_tables_cannot_be_read(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz?strict").status_code == 200)
    api.gateway.follower.stop()
    monkeypatch.setattr(api.gateway.follower, "failing", True)
    monkeypatch.setattr(api.gateway.follower, "last_error", "FileNotFoundError: gone")
    assert reasons(ready(api, 503)) == {"view": "the tables cannot be read: FileNotFoundError: gone"}


def test_not_ready_when_the_view_lags(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    api.fold.pause()
    write_status(api, epoch=1000, timeMillis=_ms())
    until(lambda: api.gateway.fold.status is not None and api.gateway.fold.status.epoch == 1000)
    found = ready(api, 503, lenient=503)  # here alone: the fold goes on
    assert "the fold is at 1000" in str(reasons(found)["view"])
    assert fold_health(api).lag.epochs > 50
    api.fold.resume()


def test_not_strictly_ready_when_the_fold_is_behind_the_start(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api: HttpApi = make_api(reads=Reads.COMMITTED)
    until(lambda: api.get("/readyz?strict").status_code == 200)
    monkeypatch.setattr(api.gateway, "started_offset", 10_000_000)
    assert "before the start of this gateway are not in the tables" in str(reasons(ready(api, 503))["fold"])

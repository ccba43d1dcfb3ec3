# SPDX-License-Identifier: Apache-2.0
"""Options and profiles of the whole test suite.

``--deep`` runs the tests marked ``deep`` too, and lets Hypothesis look further and at random; without it every run draws
the same examples, so that a failure on a branch is that branch's.

``--fast`` leaves out tests marked ``jvm`` or ``deep`` and those of `_NOT_FAST`, and draws few examples: an answer
within a minute, to be followed by all of them.

With pytest-xdist all files whose tests start a JVM go to one worker, one after the other: two at a time would be too much
for a small machine. The others go wherever there is room, each as a whole: the tests of a file may build on each other.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from runtime import logs

settings.register_profile(
    "ordinary",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("fast", settings.get_profile("ordinary"), max_examples=10)
settings.register_profile("deep", settings.get_profile("ordinary"), derandomize=False, max_examples=2_000)

_NOT_FAST = (
    *("benchmarks", "differential", "e2e", "namesrv_checklist", "pipelines/backup", "pipelines/spark"),
    *("api/http/test_fast_path.py", "api/http/test_fast_path_connections.py", "api/http/test_limits.py"),
    *("api/test_large_registrations.py", "api/test_log_worker.py", "api/test_offset_tokens.py"),
    *("api/test_several_gateways.py", "api/test_visible.py", "api/view/test_follower.py", "api/view/test_history.py"),
    *("cli/test_broker.py", "cli/test_preflight.py", "cli/test_route.py", "cli/test_usage.py"),
    *("clients/broker/test_fleet.py", "clients/route/test_http.py"),
    *("deploy/test_door.py", "deploy/test_jars.py", "lake/test_arrow_types.py"),
    *("pipelines/log/test_cost.py", "pipelines/log/test_sqlite.py", "pipelines/log/test_sqlite_start.py"),
    *("pipelines/shards/test_spool.py", "pipelines/tables/test_crash.py", "pipelines/tables/test_maintenance.py"),
    *("runtime/test_machine.py", "runtime/test_process.py", "runtime/test_signals.py"),
)
"""Folders and files, below this one, that start processes or take seconds a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what starts JVMs or processes, or takes long")
    parser.addoption("--deep", action="store_true", help="also run what takes long (tests marked deep)")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so, and every process that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A command that a test runs in this process must not turn the logging round for the tests after it.
    logs.configure = _ignore_process
    settings.load_profile(next((name for name in ("deep", "fast") if config.getoption(f"--{name}")), "ordinary"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    if config.getoption("--fast"):
        left_out = [item for item in items if not _is_fast(item)]
        items[:] = [item for item in items if _is_fast(item)]
        config.hook.pytest_deselected(items=left_out)
    skip = pytest.mark.skip(reason="takes long: run with --deep")
    for item in items:
        if "deep" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def umask_of_its_own() -> Iterator[None]:
    """A command that a test runs in this process sets the modes of what it makes: not of what later tests make."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


def _is_fast(item: pytest.Item) -> bool:
    path = item.path.relative_to(Path(__file__).parent)
    marked = any(item.get_closest_marker(name) for name in ("jvm", "deep"))
    return not marked and not any(map(path.is_relative_to, _NOT_FAST))


def _ignore_process(process: str) -> None:
    """Leave the logging as it is."""


class JvmsInOneWorker(LoadFileScheduling):
    """Which tests go to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "jvm" if _starts_jvm(self.config.rootpath / file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> JvmsInOneWorker:
    return JvmsInOneWorker(config, log)


@cache
def _starts_jvm(file: Path) -> bool:
    """Whether tests of a file, or fixtures beside it, are marked so."""
    beside = file.with_name("conftest.py")
    return any("mark.jvm" in path.read_text(encoding="utf-8") for path in (file, beside) if path.exists())

# SPDX-License-Identifier: Apache-2.0
"""Options and profiles of the whole test suite.

``--deep`` runs the tests marked ``deep`` too, and lets Hypothesis look further and at random; without it every run draws
the same examples, so that a failure on a branch is that branch's.

``--fast`` leaves out tests marked ``jvm`` or ``deep`` and those of `_NOT_FAST`, and draws few examples: an answer
within a minute, to be followed by all of them.

With pytest-xdist one worker begins with the files whose tests start JVMs, which mostly wait, the others with those that
compute; whoever is done takes what is left of the other kind. So four workers keep two cores at work. A file stays
whole, as its tests may build on each other, and so do folders whose tests share what only one can have.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from dev.support.measured import Measured, runs_tests
from runtime import logs

settings.register_profile(
    "ordinary",
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("fast", settings.get_profile("ordinary"), max_examples=10)
settings.register_profile("deep", settings.get_profile("ordinary"), derandomize=False, max_examples=2_000)

_NOT_FAST = (
    *("dev/benchmarks", "differential", "e2e", "namesrv_checklist", "ops/backup", "ops/doctor"),
    *("pipelines/spark", "fault_injection/test_sample.py"),
    *("api/http/test_fast_path.py", "api/http/test_fast_path_connections.py", "api/http/test_limits.py"),
    *("api/http/test_self_preservation.py", "api/console/test_browser.py"),
    *("api/gateway/test_large_registrations.py", "eventlog/test_worker.py", "api/gateway/test_offset_tokens.py"),
    *("api/settings/test_process.py", "api/gateway/test_several_gateways.py", "api/gateway/test_visible.py"),
    *("api/gateway/test_follower.py", "lake/history/test_history.py"),
    *("cli/test_broker.py", "cli/test_preflight.py", "cli/test_route.py", "cli/test_usage.py"),
    *("clients/test_addresses.py", "clients/broker/test_fleet.py", "clients/route/test_http.py"),
    *("deploy/test_script.py", "runtime/test_jars.py", "lake/delta/test_arrow_types.py", "lake/write/test_staging.py"),
    *("eventlog/test_cost.py", "eventlog/test_sqlite.py", "eventlog/test_sqlite_start.py"),
    "lake/history/reports/test_page_examples.py",
    *("lake/write/test_spool.py", "lake/write/test_crash.py"),
    *("lake/write/test_maintenance.py", "lake/write/test_seed.py"),
    *(
        "runtime/test_supervised_tasks.py",
        "runtime/test_logs.py",
        "runtime/test_machine.py",
        "runtime/test_process.py",
        "runtime/test_signals.py",
    ),
)
"""Folders and files, below this one, that start processes or take seconds a test."""

_TOGETHER = ("tests/eventlog/", "tests/pipelines/spark/", "tests/cli/admin/")
"""Folders whose tests share a Kafka, a Spark, or addresses that only one can listen on."""

_LONG = (
    "fault_injection/",
    "e2e/",
    "clients/",
    "differential/",
    "pipelines/",
    "cli/",
    "lake/",
    "ops/",
    "eventlog/",
    "lake/history/",
    "api/",
)
"""Folders with tests that take long, the longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what starts JVMs or processes, or takes long")
    parser.addoption("--deep", action="store_true", help="also run what takes long (tests marked deep)")
    parser.addoption("--measure", type=Path, metavar="FOLDER", help="for ./routelake test --coverage")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so, and every process that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A command that a test runs in this process must not turn the logging round for the tests after it.
    logs.configure = _ignore_process
    if (folder := config.getoption("--measure")) is not None and runs_tests(config):
        config.pluginmanager.register(Measured(config, folder))
    settings.load_profile(next((name for name in ("deep", "fast") if config.getoption(f"--{name}")), "ordinary"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and _is_left_out(collection_path) else None


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
    return not any(item.get_closest_marker(name) for name in ("jvm", "deep"))


def _is_left_out(path: Path) -> bool:
    return any(map(path.relative_to(Path(__file__).parent).is_relative_to, _NOT_FAST))


def _ignore_process(process: str) -> None:
    """Leave the logging as it is."""


class JvmsBesideTheRest(LoadFileScheduling):
    """Which tests go to which worker, and when."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((folder for folder in _TOGETHER if file.startswith(folder)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_jvm = node is next(iter(self.assigned_work))
        own = [unit for unit in self.workqueue if self._starts_jvm(unit) == wants_jvm]
        helps = not own and not wants_jvm
        # Whole folders take minutes: whoever helps begins with them, or one would be all that is left in the end.
        unit = min(own or self.workqueue, key=lambda unit: (helps and unit not in _TOGETHER, _turn(unit)))
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _starts_jvm(self, unit: str) -> bool:
        return unit in _TOGETHER or "mark.jvm" in (self.config.rootpath / unit).read_text(encoding="utf-8")


def _turn(unit: str) -> int:
    """What takes minutes comes first, so that nobody waits for it in the end."""
    return next((turn for turn, start in enumerate(_LONG) if unit.startswith(f"tests/{start}")), len(_LONG))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> JvmsBesideTheRest:
    return JvmsBesideTheRest(config, log)

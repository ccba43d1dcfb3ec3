# SPDX-License-Identifier: Apache-2.0
"""Options and profiles of the whole test suite.

``--deep`` runs the tests marked ``deep`` too, and lets Hypothesis look further and at random; without it every run draws
the same examples, so that a failure on a branch is that branch's. ``--only-deep`` does so as well, and leaves out the tests
that an ordinary run does in the same way.

``--fast`` leaves out tests marked ``jvm`` or ``deep`` and those of `_NOT_FAST`, and draws few examples: an answer
within minutes, to be followed by all of them.

With pytest-xdist the tests of a file run in one worker, as they may share what a module has, and so do all files with the
same ``xdist_group``: one worker makes what they share. The longest come first, by durations.json. Files that start JVMs,
which mostly wait, alternate with those that compute, so that four workers keep two cores at work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx._transports.default
import pytest
import typer.main
from hypothesis import HealthCheck, settings

from dev.support.java import end_spark
from dev.support.measured import Measured, runs_tests
from dev.support.units import ByUnit, RecordedDurations, in_turn
from runtime import logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "ordinary",
    max_examples=40,
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
    *("pipelines/spark", "fault_injection/test_sample.py", "fault_injection/test_power_cut.py"),
    *("api/http/test_proxies.py", "api/http/test_openapi_fuzz.py", "api/settings/test_config_update.py"),
    *("deploy/test_wheel.py", "lake/test_publisher.py", "lake/history/intervals/test_keeper.py"),
    *("lake/history/test_timeline.py", "lake/history/test_past.py", "lake/history/test_diff.py"),
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
        "runtime/test_fold_process.py",
        "runtime/test_machine.py",
        "runtime/test_process.py",
        "runtime/test_signals.py",
    ),
)
"""Folders and files, below this one, that start processes or take seconds a test."""

_DEEP_TIMEOUT_S = 1_800
"""Time limit of a test for which Hypothesis draws 2,000 examples instead of 40."""

_ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what starts JVMs or processes, or takes long")
    parser.addoption("--deep", action="store_true", help="also run what takes long (tests marked deep)")
    parser.addoption("--only-deep", action="store_true", help="only what --deep adds, or tests further")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json")
    parser.addoption("--measure", type=Path, metavar="FOLDER", help="for ./routelake test --coverage")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so, and every process that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.option.deep = config.option.deep or config.option.only_deep
    os.environ["ROUTELAKE_FOLD_CORES"] = "0"  # tests wait for epochs, which come up to ten seconds later with a limit
    # A command that a test runs in this process must not turn the logging round for the tests after it.
    logs.configure = _ignore_process
    # Typer builds all commands for each command line. That takes longer than most commands that tests run in this process.
    typer.main.get_command = cache(typer.main.get_command)
    # httpx reads the certificates of all authorities for each client, also for plain HTTP. That takes longer than a request.
    vars(httpx._transports.default)["create_ssl_context"] = cache(httpx.create_ssl_context)
    if (folder := config.getoption("--measure")) is not None and runs_tests(config):
        config.pluginmanager.register(Measured(config, folder))
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RecordedDurations())
    settings.load_profile(next((name for name in ("deep", "fast") if config.getoption(f"--{name}")), "ordinary"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and _is_left_out(collection_path) else None


@pytest.hookimpl(trylast=True)  # after Hypothesis has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = in_turn(items)
    for option, is_chosen in (("--fast", _is_fast), ("--only-deep", _is_deeper)):
        if config.getoption(option):
            config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item)])
            items[:] = filter(is_chosen, items)
    if config.getoption("--deep"):
        for item in items:
            if item.get_closest_marker("hypothesis") and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(_DEEP_TIMEOUT_S))
        return
    skip = pytest.mark.skip(reason="takes long: run with --deep")
    for item in items:
        if "deep" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def is_deep(pytestconfig: pytest.Config) -> bool:
    """Whether tests go further than in an ordinary run."""
    return bool(pytestconfig.getoption("--deep"))


@pytest.fixture(autouse=True)
def umask_of_its_own() -> Iterator[None]:
    """A command that a test runs in this process sets the modes of what it makes: not of what later tests make."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The fold's own session, with every jar: a process has one JVM, and its class path cannot grow later.

    For files with the mark ``xdist_group("spark")``, which share it.
    """
    from pipelines.session import session  # not before a test needs it: it takes a second

    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the Python workers
    return session("routelake-tests", shards=2, delta=True)


@pytest.hookimpl(trylast=True)  # after the fixtures that use it
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Spark and its JVM after the last file that uses them.

    Spark's driver takes connections of its JVM. A gateway takes no HTTP write from such a process without a token
    (`api.http.local_peers`), so later tests of this worker could not write.
    """
    if _uses_spark(item) and (nextitem is None or not _uses_spark(nextitem)):
        end_spark()


def _uses_spark(item: pytest.Item) -> bool:
    return any("spark" in mark.args for mark in item.iter_markers("xdist_group"))


def _is_fast(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in ("jvm", "deep"))


def _is_deeper(item: pytest.Item) -> bool:
    """Whether this test runs only with --deep, or goes further with it."""
    marked = any(item.get_closest_marker(name) for name in ("deep", "hypothesis"))
    return marked or (isinstance(item, pytest.Function) and "is_deep" in item.fixturenames)


def _is_left_out(path: Path) -> bool:
    return any(map(path.relative_to(Path(__file__).parent).is_relative_to, _NOT_FAST))


def _ignore_process(process: str) -> None:
    """Leave the logging as it is."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit:
    return ByUnit(config, log)

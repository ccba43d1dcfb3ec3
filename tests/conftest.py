"""Options and profiles of the whole test suite.

``--deep`` runs the tests marked ``deep`` too, and lets Hypothesis look further and at random; without it every run draws
the same examples, so that a failure on a branch is that branch's.

With pytest-xdist all files whose tests start a JVM go to one worker, one after the other: two at a time would be too much
for a small machine. The others go wherever there is room, each as a whole: the tests of a file may build on each other.
"""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from deploy import logs

settings.register_profile(
    "ordinary",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("deep", settings.get_profile("ordinary"), derandomize=False, max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="also run what takes long (tests marked deep)")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so, and every process that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A command that a test runs in this process must not turn the logging round for the tests after it.
    logs.configure = _ignore_process
    settings.load_profile("deep" if config.getoption("--deep") else "ordinary")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    skip = pytest.mark.skip(reason="takes long: run with --deep")
    for item in items:
        if "deep" in item.keywords:
            item.add_marker(skip)


def _ignore_process(_process: str) -> None:
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

"""Options and profiles of the whole test suite.

``--deep`` runs the tests marked ``deep`` too, and lets Hypothesis look further and at random; without it every run draws
the same examples, so that a failure on a branch is that branch's.

With pytest-xdist all files whose tests start a JVM go to one worker, one after the other: two at a time would be too much
for a small machine. The others go wherever there is room, each as a whole: the tests of a file may build on each other.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

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
    settings.load_profile("deep" if config.getoption("--deep") else "ordinary")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    jvm = {item.path for item in items if "jvm" in item.keywords}
    for item in items:
        item.add_marker(pytest.mark.xdist_group("jvm" if item.path in jvm else str(item.path)))
    if config.getoption("--deep"):
        return
    skip = pytest.mark.skip(reason="takes long: run with --deep")
    for item in items:
        if "deep" in item.keywords:
            item.add_marker(skip)

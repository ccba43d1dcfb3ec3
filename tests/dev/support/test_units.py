# SPDX-License-Identifier: Apache-2.0
"""Workers of pytest-xdist that crash: the run goes on, and names the tests that crashed them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT

CONFTEST = """
import faulthandler
from dev.support.units import ByUnit

faulthandler.dump_traceback_later(60, repeat=True)  # a run takes two seconds: say where it waits

def pytest_xdist_make_scheduler(config, log):
    return ByUnit(config, log)
"""
FILE = """
import os, pytest

@pytest.mark.parametrize("number", range({tests}))
def test_number(number):
    if number in {crashes}:
        os._exit(9)
"""


@pytest.mark.parametrize(
    ("files", "passed"),
    [
        pytest.param({"a": (9, (0, 4)), "b": (9, (0, 8)), "c": (1, ())}, 15, id="both-workers"),
        pytest.param({"a": (2, (0,))}, 1, id="one-test-is-left"),
    ],
)
def test_a_run_goes_on_after_a_crash(
    tmp_path: Path, files: dict[str, tuple[int, tuple[int, ...]]], passed: int
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    crashed = set()
    for name, (tests, crashes) in files.items():
        (tmp_path / f"test_{name}.py").write_text(FILE.format(tests=tests, crashes=crashes))
        crashed |= {f"test_{name}.py::test_number[{number}]" for number in crashes}
    options = ("-n", "2", "-p", "xdist", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=False,
    )
    assert set(re.findall(r"crashed while running '(.+)'", run.stdout)) == crashed, run.stdout
    assert f"{len(crashed)} failed, {passed} passed" in run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED

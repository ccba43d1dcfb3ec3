# SPDX-License-Identifier: Apache-2.0
"""A gateway starts without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dev.benchmarks.harness.lake_writer import LakeWriter
from dev.support.view_tables import row

PROGRAM = """
import sys
from runtime.no_pandas import keep_pandas_out
keep_pandas_out()
from api.gateway.follower import Follower
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.history import History
follower = Follower(sys.argv[1], lambda view, outcomes: None)
assert follower.poll() and follower.view.epoch == 1
assert History(sys.argv[1]).epochs()[0].epoch == 1
assert list_changes(History(sys.argv[1]), ChangesAsked()).changes == []
print("pandas" in sys.modules, "pyspark" in sys.modules)
"""


def test_reading_a_lake_does_not_load_pandas(tmp_path: Path) -> None:
    LakeWriter(tmp_path).commit(row(1))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("False False\n", 0), done.stderr

# SPDX-License-Identifier: Apache-2.0
"""`./routelake history rebuild` as a process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from lake.ddl import lock_lake
from tests.support import any_lake
from tests.support.intervals import assert_kept, assert_now


def rebuild(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.main", "history", "rebuild", "--data-dir", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_intervals_are_made_anew(tmp_path: Path) -> None:
    assert rebuild(tmp_path).returncode == 2
    any_lake.write(tmp_path / "lake")
    with closing(lock_lake(tmp_path / "lake")):
        refused = rebuild(tmp_path)
    assert refused.returncode == 2
    assert "is already held by another fold" in refused.stderr
    done = rebuild(tmp_path)
    assert done.returncode == 0, done
    assert "intervals made anew from the changes of epochs 1 to " in done.stdout
    assert_kept(tmp_path / "lake")
    assert_now(tmp_path / "lake")

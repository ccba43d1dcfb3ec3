# SPDX-License-Identifier: Apache-2.0
"""`./routelake history rebuild`: refused, and done by a process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from lake.ddl import lock_lake
from tests.support import any_lake
from tests.support.command import command, process
from tests.support.intervals import assert_kept, assert_now


def test_intervals_are_made_anew(tmp_path: Path) -> None:
    words = ("history", "rebuild", "--data-dir", tmp_path)
    assert command(*words).returncode == 2
    any_lake.write(tmp_path / "lake")
    with closing(lock_lake(tmp_path / "lake")):
        refused = command(*words)
    assert refused.returncode == 2
    assert "is already held by another fold" in refused.stderr
    done = process(*words)
    assert done.returncode == 0, done
    assert "intervals made anew from the changes of epochs 1 to " in done.stdout
    assert_kept(tmp_path / "lake")
    assert_now(tmp_path / "lake")

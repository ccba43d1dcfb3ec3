# SPDX-License-Identifier: Apache-2.0
"""What executors are given is all they need of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipelines.session import write_archive

WORK = """
import sys
sys.path.insert(0, sys.argv[1])
import pipelines.processor, pipelines.source, pipelines.cluster.executors, eventlog.kafka.tail, eventlog.sqlite.tail
import eventlog.kafka.access.tls
elsewhere = [name for name, module in sys.modules.items() if name.split(".")[0] in ("lake", "pipelines", "runtime", "schemas")
             and not module.__file__.startswith(sys.argv[1])]
assert not elsewhere, elsewhere
"""


def test_workers_import_from_the_archive_alone(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "code")
    assert write_archive(tmp_path / "code") == archive, "again, at the next start"
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORK, str(archive)],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

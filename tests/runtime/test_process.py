# SPDX-License-Identifier: Apache-2.0
"""How a process ends: with its exit code and what it has said, whatever its threads are doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from lake.delta.ddl import open_lake

_READS = """
import sys, threading
from deltalake import DeltaTable
from runtime.process import run_to_end

read = threading.Barrier(3)

def reads_on():
    first = True
    while True:
        DeltaTable(sys.argv[1]).to_pyarrow_dataset().to_table()
        if first:
            first = False
            read.wait()

def main():
    for _ in range(2):
        threading.Thread(target=reads_on, daemon=True).start()
    read.wait()
    print("refused")
    raise SystemExit(2)

run_to_end(main)
"""


def ended(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_native_threads_do_not_change_how_it_ends(tmp_path: Path) -> None:
    """Arrow and delta-rs read on while the interpreter would take itself down: a segmentation fault, nearly always."""
    open_lake(tmp_path, retention_days=30)
    for _ in range(3):
        done = ended(_READS, str(tmp_path / "topicQueueTable"))
        assert (done.returncode, done.stdout) == (2, "refused\n"), done.stderr


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('why')", 1, "why\n"),
        ("raise KeyboardInterrupt", 130, ""),
        ("raise ValueError('a defect')", 1, "ValueError: a defect\n"),
    ],
)
def test_every_end_has_its_exit_code(statement: str, code: int, said: str) -> None:
    done = ended(f"import sys\nfrom runtime.process import run_to_end\ndef main():\n    {statement}\nrun_to_end(main)")
    assert done.returncode == code, done
    assert done.stderr.endswith(said)
    assert bool(done.stderr) == bool(said)


def test_exit_handlers_run_at_the_end_of_a_process() -> None:
    script = "import atexit\nfrom runtime.process import run_to_end\natexit.register(print, 'done')\nrun_to_end(list)"
    assert ended(script).stdout == "done\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_failed_write_to_stdout_is_a_failure() -> None:
    script = "from runtime.process import run_to_end\nrun_to_end(lambda: print('an answer'))"
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        assert subprocess.run([sys.executable, "-c", script], env=environment, stdout=full, check=False).returncode == 1

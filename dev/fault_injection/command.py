# SPDX-License-Identifier: Apache-2.0
"""`./routelake torture` as a process, which may have a disk, a network and a clock of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from dev.developer import ROOT
from dev.fault_injection.figures import Figures, read_figures

WELL_S: Final = 120.0
"""On a machine that runs other tests as well; how long it takes on a quiet one is `./routelake torture`'s to judge."""


def run_torture(*options: str, folder: Path) -> Figures:
    """A run with these options, which must end without a violation; what it says is printed.

    Raises:
        AssertionError: it was refuted, or did not come to its end; with all that it said.
    """
    command = [sys.executable, "-m", "dev.fault_injection", *options, "--well-s", str(WELL_S), "--folder", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    (figures,) = read_figures([folder])
    return figures

# SPDX-License-Identifier: Apache-2.0
"""Start of an installed routelake: the package `routelake` of the wheel (setup.py).

The rooms keep their short names (``api``, ``cli``, ``lake``), which would be in the way in a site-packages of others',
so the wheel holds them in ``routelake/rooms``, which comes onto the path with ``import routelake``, and of all
processes that the command starts.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

_ROOMS = str(Path(__file__).resolve().parent / "rooms")
if _ROOMS not in sys.path:
    sys.path.insert(0, _ROOMS)


def main() -> None:
    """The console script: as ``./routelake`` of a clone, but for preparing the machine."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _ROOMS if not before else f"{_ROOMS}{os.pathsep}{before}"
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.pop("SPARK_HOME", None)  # another Spark on this machine is not ours
    runpy.run_module("cli.main", run_name="__main__", alter_sys=True)

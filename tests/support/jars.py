"""Where the class paths of the stock peers come from.

`deploy.jars` pins, downloads and verifies them. While a tree without it is being worked on, the jars may lie under the
directory named by ROUTELAKE_TEST_JARS, one folder per set.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

# set name -> folder under ROUTELAKE_TEST_JARS, as a Maven `dependency:copy-dependencies` leaves them
_SCRATCH = {"rocketmq": "rmq55/out", "rocketmq-4": "rmq49/out", "kafka": "kafka/out"}


def classpath(set_name: str) -> str:
    """The class path of a set of jars, made available first if need be.

    Args:
        set_name: "rocketmq" (5.5.0 namesrv, broker, tools), "rocketmq-4" (4.9.7 tools) or "kafka".

    Returns:
        Absolute paths joined by os.pathsep.
    """
    scratch = os.environ.get("ROUTELAKE_TEST_JARS")
    if scratch:
        jars = sorted((Path(scratch) / _SCRATCH[set_name]).glob("*.jar"))
        if not jars:
            raise FileNotFoundError(f"no jars for {set_name} under {scratch}")
        return os.pathsep.join(map(str, jars))
    found = importlib.import_module("deploy.jars").ensure(set_name)
    return found if isinstance(found, str) else os.pathsep.join(str(jar) for jar in found)

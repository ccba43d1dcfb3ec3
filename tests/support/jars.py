"""Class paths of the stock peers, from the jars that `deploy.jars` pins, downloads once and verifies."""

from __future__ import annotations

import os

from deploy.jars import ensure


def classpath(set_name: str) -> str:
    """The class path of a set of jars, made available first if need be.

    Args:
        set_name: "rocketmq" (5.5.0 namesrv, broker, tools), "rocketmq-4" (4.9.7 tools) or "kafka".

    Returns:
        Absolute paths joined by os.pathsep.
    """
    return os.pathsep.join(str(jar) for jar in ensure(set_name))

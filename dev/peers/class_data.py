# SPDX-License-Identifier: Apache-2.0
"""Class data of stock RocketMQ's JVMs, like that of Spark (`runtime.class_data`).

`dev.support.class_data` writes it.
"""

from __future__ import annotations

from pathlib import Path

from runtime.class_data import QUIET, key_of
from runtime.jars import cache_dir, ensure


def archive_of(jar_set: str) -> Path:
    """Path of the class data of what is started from a set of jars, in the folder of their cache.

    Raises:
        JarError: one of them is missing and cannot be fetched.
    """
    return cache_dir().parent / "class-data" / f"{jar_set}-{key_of(ensure(jar_set))}.jsa"


def options_of(jar_set: str) -> tuple[str, ...]:
    """Options of a JVM with a set of jars at the start of its class path; empty without class data of the set."""
    found = archive_of(jar_set)
    return (f"-XX:SharedArchiveFile={found}", *QUIET) if found.is_file() else ()

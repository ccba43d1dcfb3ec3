# SPDX-License-Identifier: Apache-2.0
"""Class data of Spark's JVM: classes that it would load and verify one by one, mapped from a file.

Of a fold's start, until its first batch is committed, that saves 40 % of the JVM's processor time. Java's class data
sharing (JEP 350) needs a JVM that has done the work once: `dev.support.class_data` writes the file for the suite,
which starts Spark twenty times, and whoever finds it uses it. It belongs to one Java and to the jars as they lie there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runtime.jars import ensure, pyspark_jars

PATTERN: Final = "spark-classes-*.jsa"
"""Files of this kind in the environment's folder (`sys.prefix`), where they go when it goes."""
QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""A JVM with these says nothing about class data that does not fit, and goes on without it."""


def archive() -> Path:
    """Path of the file for these jars; it may not exist yet.

    Raises:
        JarError: a jar of the fold is missing and cannot be fetched.
    """
    jars = pyspark_jars()
    files = [*ensure("local-fs"), *(sorted(jars.glob("*.jar")) if jars else [])]
    return Path(sys.prefix) / PATTERN.replace("*", key_of(files))


def options() -> str:
    """Options of a JVM that uses it, or none; as spark.driver.extraJavaOptions has them, with a space before them."""
    found = archive()
    return f' "-XX:SharedArchiveFile={found}" {" ".join(QUIET)}' if found.is_file() else ""


def key_of(jars: Sequence[Path]) -> str:
    """Name the Java of this machine and these jars, as they are now."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    seen = "\n".join(f"{file} {_identity(file)}" for file in (java.resolve(), *jars))
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


def _identity(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"

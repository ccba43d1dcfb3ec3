# SPDX-License-Identifier: Apache-2.0
"""Class data of Spark's JVM: a file of loaded classes, so that the JVM need not load and verify each class.

The file saves 40 % of the JVM's processor time from the start of a fold to its first commit. Java's class data sharing
(JEP 350) writes it from a JVM that has loaded the classes. `dev.support.class_data` writes it for the test suite, which
starts Spark twenty times. Every start of Spark uses the file if it exists. The file is valid for one Java and for the
present jars only.
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
"""Name pattern of the files in the environment's folder (`sys.prefix`). They are removed together with the folder."""
QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options with which a JVM ignores class data that does not fit, without a message."""


def archive() -> Path:
    """Path of the file for the present jars. The file may not exist yet.

    Raises:
        JarError: A jar of the fold is missing and cannot be downloaded.
    """
    jars = pyspark_jars()
    files = [*ensure("local-fs"), *(sorted(jars.glob("*.jar")) if jars else [])]
    return Path(sys.prefix) / PATTERN.replace("*", key_of(files))


def options() -> str:
    """JVM options for spark.driver.extraJavaOptions, after a space. Without the file, the text is empty."""
    found = archive()
    return f' "-XX:SharedArchiveFile={found}" {" ".join(QUIET)}' if found.is_file() else ""


def key_of(jars: Sequence[Path]) -> str:
    """Return a key of this machine's Java and these jars, by their sizes and times."""
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

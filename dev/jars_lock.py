# SPDX-License-Identifier: Apache-2.0
"""Writes jars.lock: what the sets are made of, resolved by Maven on a developer's machine.

Change a version in ROOTS, run ``python -m dev.jars_lock``, and review the difference like code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runtime.jars import LOCK_FILE, JarError, digest_of, pyspark_jars

ROOTS: Final[Mapping[str, tuple[str, ...]]] = {
    "local-fs": ("com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",),
    "delta": ("io.delta:delta-spark_4.2_2.13:4.4.0",),
    "s3a": (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:s3:2.35.4",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:sts:2.35.4",
        "software.amazon.awssdk:apache-client:2.35.4",
        "software.amazon.awssdk:netty-nio-client:2.35.4",
    ),
    "rocketmq": (
        "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
        "org.apache.rocketmq:rocketmq-broker:5.5.0",
        "org.apache.rocketmq:rocketmq-tools:5.5.0",
    ),
    "rocketmq-test": (
        "org.apache.rocketmq:rocketmq-test:5.5.0",
        "org.apache.rocketmq:rocketmq-test:5.5.0:tests",
        "junit:junit:4.13.2",
        "org.assertj:assertj-core:3.22.0",
        "io.grpc:grpc-testing:1.53.0",
    ),
    "rocketmq-4": (
        "org.apache.rocketmq:rocketmq-namesrv:4.9.7",
        "org.apache.rocketmq:rocketmq-broker:4.9.7",
        "org.apache.rocketmq:rocketmq-tools:4.9.7",
    ),
    "kafka": ("org.apache.kafka:kafka_2.13:4.3.1",),
    "kafka-tools": ("org.apache.kafka:kafka-tools:4.3.1",),
}
EXCLUDED: Final[Mapping[str, tuple[str, ...]]] = {
    # The whole SDK as one jar of 650 MB, of which the roots above are what Hadoop uses; and TLS by OpenSSL, an option.
    "s3a": ("software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl"),
    "kafka-tools": ("*:*",),  # Kafka Connect; what else it needs is in the set kafka
}
"""Dependencies of the roots of a set that are left out."""
ON_SPARK: Final = frozenset({"local-fs", "delta", "s3a"})
"""Sets that run inside Spark's driver, together with the jars that PySpark ships."""
FOREIGN: Final = re.compile(r"osx|windows|riscv")
"""Classifiers of native libraries for machines that routelake does not run on."""

_POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>routelake</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{roots}</dependencies></project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<classifier>{}</classifier><exclusions>{}</exclusions></dependency>\n"
)
_EXCLUSION: Final = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


def lock() -> str:
    """Resolve ROOTS with ``mvn`` and return the text of a new jars.lock."""
    lines = ["# Written by 'python -m dev.jars_lock'. Each line: set group:artifact:version sha256 size_bytes"]
    for set_name, roots in ROOTS.items():
        resolved = _resolve(roots, EXCLUDED.get(set_name, ()))
        if set_name in ON_SPARK:
            resolved = {jar: path for jar, path in resolved.items() if not _ships_with_pyspark(jar)}
        lines += [
            f"{set_name} {coordinates} {digest_of(path)} {path.stat().st_size}"
            for coordinates, path in sorted(resolved.items())
        ]
    return "\n".join(lines) + "\n"


def _resolve(roots: tuple[str, ...], excluded: tuple[str, ...] = ()) -> dict[str, Path]:
    """Ask Maven for the runtime classpath of some artifacts: ``{coordinates: file}``."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "list.txt")
        without = "".join(_EXCLUSION.format(*jar.split(":")) for jar in excluded)
        pom = _POM.format(roots="".join(_DEPENDENCY.format(*[*jar.split(":"), ""][:4], without) for jar in roots))
        Path(folder, "pom.xml").write_text(pom, encoding="utf-8")
        arguments = ["-DincludeScope=runtime", "-DoutputAbsoluteArtifactFilename=true", f"-DoutputFile={listing}"]
        subprocess.run(["mvn", "-B", "-q", "dependency:list", *arguments], cwd=folder, check=True)
        text = listing.read_text(encoding="utf-8")
    resolved: dict[str, Path] = {}
    listed = re.compile(r"^\s+([\w.-]+):([\w.-]+):(?:test-)?jar:(?:([\w.-]+):)?([\w.-]+):\w+:(/[^\s]+)", re.MULTILINE)
    for match in listed.finditer(text):
        group, artifact, classifier, version, path = match.groups()
        if classifier and FOREIGN.search(classifier):
            continue
        resolved[":".join(filter(None, [group, artifact, version, classifier]))] = Path(path)
    return resolved


def _ships_with_pyspark(coordinates: str) -> bool:
    """Return whether PySpark has some version of the artifact, which is then the one to use."""
    home = pyspark_jars()
    if home is None:
        raise JarError("jars.lock leaves out what PySpark ships: run this with the project's own .venv/bin/python.")
    pattern = re.compile(re.escape(coordinates.split(":")[1]) + r"-\d.*\.jar")
    return any(pattern.fullmatch(path.name) for path in home.iterdir())


if __name__ == "__main__":
    LOCK_FILE.write_text(lock(), encoding="utf-8")

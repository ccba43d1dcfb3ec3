# SPDX-License-Identifier: Apache-2.0
"""Search for the Java that Spark needs. If it is missing, the error has the command that installs it.

``./routelake`` installs Java itself. A wheel cannot, so each command that starts Spark searches for Java first. The
``release`` file of a runtime, which every OpenJDK since Java 9 has, shows its version and modules. Without that file,
the runtime is started and asked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from schemas.errors import SetupError

OLDEST: Final = 17
"""Oldest version of Java that Spark 4 supports."""
MODULE: Final = "jdk.incubator.vector"
"""Module in Spark's JVM options. Minimal runtimes from jlink do not have it."""

_INSTALLED: Final = Path("/usr/lib/jvm")
_OS_RELEASE: Final = Path("/etc/os-release")
_ANSWER_TIMEOUT_S: Final = 20


class Java(NamedTuple):
    """A Java runtime: its home, its version such as 17, and whether it has `MODULE`."""

    home: Path
    version: int
    has_module: bool

    @property
    def is_usable(self) -> bool:
        """Return True if Spark can run with this Java."""
        return self.version >= OLDEST and self.has_module


def find_java(environ: Mapping[str, str] = os.environ, installed: Path = _INSTALLED) -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and the folder where distributions install it.

    Args:
        environ: Environment variables.
        installed: Folder of the distribution's Java runtimes.

    Raises:
        SetupError: No usable Java was found. The message has the command that installs one.
    """
    found = []
    for home in _homes(environ, installed):
        java = read_java(home)
        if java is not None:
            if java.is_usable:
                return java
            found.append(java)
    raise SetupError(
        f"Spark needs Java {OLDEST} or newer with the module {MODULE}. {_unusable(found)}"
        f"Install it with `{install_command(_OS_RELEASE)}`, or set JAVA_HOME to one, and start again."
    )


def use_java() -> None:
    """Set JAVA_HOME, for this process and its children, to the Java that `find_java` finds. Raises SetupError."""
    os.environ["JAVA_HOME"] = str(find_java().home)


def read_java(home: Path) -> Java | None:
    """Return the Java in a folder, or None if the folder has no Java that answers."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _ask(home)
    facts = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if "JAVA_VERSION" not in facts or "MODULES" not in facts:
        return _ask(home)
    return Java(home, _major(facts["JAVA_VERSION"]), MODULE in facts["MODULES"].split())


def install_command(os_release: Path) -> str:
    """Return the command that installs Java on the distribution of an os-release file."""
    try:
        text = os_release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    facts = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    names = {facts.get("ID", ""), *facts.get("ID_LIKE", "").split()}
    if names & {"debian", "ubuntu"}:
        before_21 = {"debian": 13, "ubuntu": 24}.get(facts.get("ID", ""), 0)
        package = 17 if 0 < _major(facts.get("VERSION_ID", "")) < before_21 else 21
        return f"apt-get install openjdk-{package}-jre-headless"
    if "amzn" in names:  # Amazon Linux: its ID_LIKE is fedora, but it has no OpenJDK 21 package of that name
        return "dnf install java-21-amazon-corretto-headless"
    if names & {"rhel", "fedora", "centos"}:
        return "dnf install java-21-openjdk-headless"
    if names & {"suse", "opensuse"}:
        return "zypper install java-21-openjdk-headless"
    return "the package manager of this system: OpenJDK 21, a JRE or JDK with all modules"


def _homes(environ: Mapping[str, str], installed: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    yield from sorted(path.resolve() for path in installed.glob("*") if path.is_dir())


def _ask(home: Path) -> Java | None:
    """Start a Java that has no release file, and read version and modules from its output."""
    java = str(home / "bin" / "java")
    try:
        said, modules = (
            subprocess.run([java, *options], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=True)
            for options in (("-XshowSettings:properties", "-version"), ("--list-modules",))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^ *java\.specification\.version = (\S+)$", said.stderr + said.stdout, re.MULTILINE)
    has_module = re.search(rf"^{re.escape(MODULE)}\b", modules.stdout, re.MULTILINE) is not None
    return Java(home, _major(version[1]) if version else 0, has_module)


def _major(version: str) -> int:
    """Return the major version: 17 for "17.0.15", 8 for "1.8.0_402", 0 for any other text."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def _unusable(found: list[Java]) -> str:
    if not found:
        return "No Java was found. "
    shown = [f"{java.home} is Java {java.version}{'' if java.has_module else f' without {MODULE}'}" for java in found]
    return f"Found, but not usable: {', '.join(dict.fromkeys(shown))}. "

# SPDX-License-Identifier: Apache-2.0
"""The Java that Spark starts with, and the message without one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from runtime.java import MODULE, Java, find_java, install_command, read_java, use_java
from schemas.errors import SetupError

ALL_MODULES = f"java.base java.logging {MODULE}"


def runtime(home: Path, version: str, modules: str = ALL_MODULES) -> Path:
    """Write a Java runtime that is never started: its release file and an executable."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.mark.parametrize(
    ("version", "modules", "expected"),
    [
        ("17.0.15", ALL_MODULES, (17, True)),
        ("21", ALL_MODULES, (21, True)),
        ("25-ea", ALL_MODULES, (25, True)),
        ("1.8.0_402", "", (8, False)),
        ("21.0.2", "java.base java.incubator", (21, False)),
    ],
)
def test_a_release_file_is_enough(version: str, modules: str, expected: tuple[int, bool], tmp_path: Path) -> None:
    home = runtime(tmp_path / "java", version, modules)
    assert read_java(home) == Java(home, *expected)


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        f'case "$*" in --list-modules) echo java.base@21 && echo {MODULE}@21 ;;\n'
        "*) echo '    java.specification.version = 21' >&2 ;; esac\n"
    )
    (home / "bin" / "java").chmod(0o755)
    assert read_java(home) == Java(home, 21, True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert read_java(home) is None


def test_java_home_comes_first_then_path_then_the_distributions_folder(tmp_path: Path) -> None:
    named, on_path = runtime(tmp_path / "named", "17.0.1"), runtime(tmp_path / "on path", "21.0.1")
    installed = runtime(tmp_path / "jvm" / "java-25", "25.0.1").parent
    environment = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(environment, installed).home == named
    assert find_java(environment | {"JAVA_HOME": ""}, installed).home == on_path
    assert find_java({"PATH": str(tmp_path)}, installed).home == installed / "java-25"


def test_one_that_spark_refuses_is_passed_over(tmp_path: Path) -> None:
    old, small = runtime(tmp_path / "old", "11.0.20"), runtime(tmp_path / "small", "21.0.1", "java.base")
    installed = runtime(tmp_path / "jvm" / "java-17", "17.0.1").parent
    environment = {"JAVA_HOME": str(old), "PATH": str(small / "bin")}
    assert find_java(environment, installed).home == installed / "java-17"
    with pytest.raises(SetupError) as refused:
        find_java(environment, tmp_path / "nothing")
    assert f"{old} is Java 11, {small} is Java 21 without {MODULE}" in str(refused.value)


def test_where_there_is_none_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"No Java was found\. Install it with `[^`]+`"):
        find_java({"PATH": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ('ID=debian\nVERSION_ID="12"', "apt-get install openjdk-17-jre-headless"),
        ('ID=debian\nVERSION_ID="13"', "apt-get install openjdk-21-jre-headless"),
        ("ID=debian", "apt-get install openjdk-21-jre-headless"),  # testing has no VERSION_ID
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"', "apt-get install openjdk-17-jre-headless"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"', "apt-get install openjdk-21-jre-headless"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"', "dnf install java-21-openjdk-headless"),
        ("ID=fedora\nVERSION_ID=42", "dnf install java-21-openjdk-headless"),
        ('ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"', "dnf install java-21-amazon-corretto-headless"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper install java-21-openjdk-headless"),
    ],
)
def test_each_distribution_has_its_own_command(os_release: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "os-release"
    file.write_text(f"{os_release}\n")
    assert install_command(file) == command


def test_an_unknown_distribution_gets_the_name_of_the_package(tmp_path: Path) -> None:
    assert "OpenJDK 21" in install_command(tmp_path / "none")


@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java on the PATH")
def test_this_machines_java_is_found_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    use_java()
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()

# SPDX-License-Identifier: Apache-2.0
"""Build of the wheel: the packages of the product under routelake/rooms. pyproject.toml has its name and requirements.

All builds of one commit are equal byte for byte, on any machine and at any time (docs/how-to/operate/install.md).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGES = (
    *("api", "cli", "clients", "eventlog", "lake", "nameserver", "ops", "pipelines", "remoting", "runtime"),
    *("schemas", "security"),
)

# Time of every file in the wheel: the oldest time that a zip archive can hold.
os.environ["SOURCE_DATE_EPOCH"] = "315532800"


class BuildPackages(build_py):
    """Copy the packages into an empty folder."""

    def run(self) -> None:
        """See `build_py`. Files of an earlier build that are no longer in the source are not in the wheel."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWheel(bdist_wheel):
    """Pack files with modes that do not depend on the umask."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: object) -> None:
        """See `bdist_wheel`. It packs the folder above `wheelfile_base` after this call."""
        super().write_wheelfile(wheelfile_base, *arguments)
        for path in Path(wheelfile_base).parent.rglob("*"):
            if path.is_file():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


found = find_packages(include=[*PACKAGES, *(f"{package}.*" for package in PACKAGES)])
setup(
    cmdclass={"build_py": BuildPackages, "bdist_wheel": BuildWheel},
    packages=["routelake", *(f"routelake.rooms.{package}" for package in found)],
    package_dir={"routelake": "deploy/launcher", "routelake.rooms": "."},
    package_data={
        "routelake.rooms.api.console": ["static/*", "vendor/*"],
        "routelake.rooms.api.http": ["examples.json"],
        "routelake.rooms.runtime": ["jars.lock"],
        "routelake.rooms.pipelines": ["log4j2.properties", "spark_python"],
    },
    include_package_data=False,
)

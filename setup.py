# SPDX-License-Identifier: Apache-2.0
"""The wheel: the rooms of the product under routelake/rooms. What it is called and needs stands in pyproject.toml."""

from __future__ import annotations

from setuptools import find_packages, setup

ROOMS = (
    *("api", "cli", "clients", "eventlog", "lake", "nameserver", "ops", "pipelines", "remoting", "runtime"),
    *("schemas", "security"),
)

packages = find_packages(include=[*ROOMS, *(f"{room}.*" for room in ROOMS)])
setup(
    packages=["routelake", *(f"routelake.rooms.{package}" for package in packages)],
    package_dir={"routelake": "deploy/launcher", "routelake.rooms": "."},
    package_data={
        "routelake.rooms.api.console": ["static/*"],
        "routelake.rooms.runtime": ["jars.lock"],
        "routelake.rooms.pipelines": ["log4j2.properties", "spark_python"],
    },
    include_package_data=False,
)

# SPDX-License-Identifier: Apache-2.0
"""Record of lines and branches that the tests of `[tool.routelake.coverage]` reach, made while the whole suite runs.

A pytest plugin. The tracer is at work while tests are collected, as importing a module runs its lines, and then during
those tests alone: no test runs twice, and the others are as fast as ever. `dev.developer` judges the record.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage


class Measured:
    """Writes a file of coverage's into a folder, one from each process.

    Args:
        config: Configuration of this process, which runs tests.
        folder: Folder of the file.
    """

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        root = config.rootpath
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        settings = project["tool"]["routelake"]["coverage"]
        self._measured = tuple(root / name for name in settings["tests"])
        self._slow = tuple(root / name for name in settings["slow"])
        self._coverage = Coverage(
            data_file=str(folder / "data"),
            data_suffix=True,
            config_file=str(root / "pyproject.toml"),
            include=[str(root / pattern) for group in settings["groups"] for pattern in group["files"]],
        )
        self._coverage.start()

    def pytest_collection_finish(self) -> None:
        self._coverage.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if not self._measures(item.path):
            return (yield)
        self._coverage.start()
        try:
            return (yield)
        finally:
            self._coverage.stop()

    def pytest_sessionfinish(self) -> None:
        self._coverage.save()

    def _measures(self, path: Path) -> bool:
        return any(map(path.is_relative_to, self._measured)) and path not in self._slow


def runs_tests(config: pytest.Config) -> bool:
    """Return whether this process runs tests; with pytest-xdist its workers do."""
    return hasattr(config, "workerinput") or not config.getoption("numprocesses")

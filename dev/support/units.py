# SPDX-License-Identifier: Apache-2.0
"""Units of tests that go to one worker of pytest-xdist together, their order, and how long each takes.

A unit is a file, or all files with the same ``xdist_group``. The longest units come first. Units that start JVMs, which
mostly wait, alternate with units that compute.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_ROOT = Path(__file__).parents[2]
_DURATIONS = _ROOT / "tests" / "durations.json"
"""Seconds of each unit, from 2 s on. Written with --record-durations."""
_SHORT_S = 2.0
_GROUP = re.compile(r'mark\.xdist_group\("(\w+)"\)')


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def _unit_of_file(root: Path, file: str) -> str:
    group = _GROUP.search(_text(root / file))
    return group[1] if group else file


def _unit(root: Path, nodeid: str) -> str:
    """Name of the tests that go to one worker together: their group, or their file."""
    return _unit_of_file(root, nodeid.partition("::")[0])


def in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests by when they start."""
    units = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        units[_unit(item.config.rootpath, item.nodeid)].append(item)
    seconds = defaultdict(lambda: _SHORT_S, json.loads(_DURATIONS.read_text(encoding="utf-8")))
    queues: dict[bool, list[str]] = {True: [], False: []}
    for unit in sorted(units, key=lambda unit: seconds[unit]):
        queues[any("mark.jvm" in _text(file) for file in {item.path for item in units[unit]})].append(unit)
    begun_s, turns = {True: 0.0, False: 0.0}, list[pytest.Item]()
    while any(queues.values()):
        starts_jvm = not queues[False] or (bool(queues[True]) and begun_s[True] <= begun_s[False])
        unit = queues[starts_jvm].pop()
        begun_s[starts_jvm] += seconds[unit]
        turns += units[unit]
    return turns


class ByUnit(LoadScopeScheduling):
    """Scheduler of pytest-xdist that sends each unit to one worker.

    Not ``--dist=loadgroup``, because pytest-xdist 3.8 cannot rename tests of pytest 9.2.

    If a worker crashes, the test that ran is reported as failed and does not run again. The other tests of its unit run on
    another worker. `LoadScopeScheduling` runs the test again, which crashes the next worker. Then it sends a worker a unit
    with all tests done, or the last test of all without a shutdown, and that worker waits for ever.
    These are issues 1323 and 1327 and pull request 1371 of pytest-xdist.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Take back what a worker has not done.

        Returns:
            The test during which the worker crashed, or None if it has done everything.
        """
        units = self.assigned_work.pop(node)
        crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
        if crashed is None:
            return None
        units[self._split_scope(crashed)][crashed] = True  # the caller reports it as failed
        self.workqueue.update({name: unit for name, unit in units.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker two tests, as it runs a test when it knows the next one. Shut it down if there are no more."""
        if node not in self.registered_collections or node.shutting_down:
            return  # a worker that replaces another one collects its tests first
        while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def _split_scope(self, nodeid: str) -> str:
        return _unit(self.config.rootpath, nodeid)


class RecordedDurations:
    """Plugin of the process that starts the workers: writes how long each unit took."""

    def __init__(self) -> None:
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_unit(_ROOT, report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        longest = sorted(self._seconds.items(), key=lambda found: -found[1])
        found = {unit: round(seconds) for unit, seconds in longest if seconds >= _SHORT_S}
        _DURATIONS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

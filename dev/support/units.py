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

_ROOT = Path(__file__).parents[2]
_DURATIONS = _ROOT / "tests" / "durations.json"
"""Seconds of each unit, from 2 s on. Written with --record-durations."""
_SHORT_S = 2.0
_GROUP = re.compile(r'mark\.xdist_group\("(\w+)"\)')


@cache
def _text(file: str) -> str:
    return (_ROOT / file).read_text(encoding="utf-8")


def _unit(nodeid: str) -> str:
    """Name of the tests that go to one worker together: their group, or their file."""
    file = nodeid.partition("::")[0]
    group = _GROUP.search(_text(file))
    return group[1] if group else file


def in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests by when they start."""
    units = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        units[_unit(item.nodeid)].append(item)
    seconds = defaultdict(lambda: _SHORT_S, json.loads(_DURATIONS.read_text(encoding="utf-8")))
    queues: dict[bool, list[str]] = {True: [], False: []}
    for unit in sorted(units, key=lambda unit: seconds[unit]):
        files = {item.nodeid.partition("::")[0] for item in units[unit]}
        queues[any("mark.jvm" in _text(file) for file in files)].append(unit)
    begun_s, turns = {True: 0.0, False: 0.0}, list[pytest.Item]()
    while any(queues.values()):
        starts_jvm = not queues[False] or (bool(queues[True]) and begun_s[True] <= begun_s[False])
        unit = queues[starts_jvm].pop()
        begun_s[starts_jvm] += seconds[unit]
        turns += units[unit]
    return turns


class ByUnit(LoadScopeScheduling):
    """Which tests go to one worker. Not --dist=loadgroup: pytest-xdist 3.8 cannot rename tests of pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return _unit(nodeid)


class RecordedDurations:
    """Plugin of the process that starts the workers: writes how long each unit took."""

    def __init__(self) -> None:
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_unit(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        longest = sorted(self._seconds.items(), key=lambda found: -found[1])
        found = {unit: round(seconds) for unit, seconds in longest if seconds >= _SHORT_S}
        _DURATIONS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

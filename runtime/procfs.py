# SPDX-License-Identifier: Apache-2.0
"""Process data from Linux's /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def stat_fields(stat: Path) -> list[str]:
    """The fields of a ``/proc/…/stat`` after the name: state, parent, ... (proc(5)). The name may have any character.

    Raises:
        OSError: The process or thread has ended.
    """
    return stat.read_text().rpartition(")")[2].split()


def processor_s(pid: int) -> float:
    """Processor time of a process and its descendants, in seconds. 0: the process has ended."""
    ticks = 0
    for process in _below(pid)[0]:
        with suppress(OSError):  # it has just ended
            ticks += sum(map(int, stat_fields(Path(f"/proc/{process}/stat"))[11:15]))  # own, and ended children's
    return ticks / os.sysconf("SC_CLK_TCK")


def threads_below(pid: int) -> set[int]:
    """The threads of a process and its descendants. The result has at least the main thread of the process."""
    return _below(pid)[1]


def _below(pid: int) -> tuple[list[int], set[int]]:
    """A process and its descendants, and the threads of all of them."""
    processes, threads = [pid], {pid}
    for process in processes:
        for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
            threads.add(int(task.name))
            with suppress(OSError):  # it has just ended
                processes += map(int, (task / "children").read_text().split())
    return processes, threads

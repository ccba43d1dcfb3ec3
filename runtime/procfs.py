# SPDX-License-Identifier: Apache-2.0
"""Process data from Linux's /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def stat_fields(stat: Path) -> list[str]:
    """The fields of a ``/proc/…/stat`` after the name, which may hold anything: state, parent, ... (proc(5)).

    Raises:
        OSError: The process or thread is gone.
    """
    return stat.read_text().rpartition(")")[2].split()


def status_fields(pid: int) -> dict[str, str]:
    """The fields of ``/proc/PID/status``, those of memory in kB: ``VmHWM`` is ``1024 kB`` (proc(5)).

    Raises:
        OSError: The process is gone.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def memory_bytes(pid: int, field: str = "VmHWM") -> int:
    """One of `status_fields` that tells of memory; VmHWM is the most that was resident.

    Raises:
        OSError: The process has ended.
    """
    found = status_fields(pid).get(field)
    if found is None:
        raise ProcessLookupError(f"process {pid} has no {field}: it is a zombie")
    return int(found.split()[0]) * 1024


def commands_of_children(pid: int) -> dict[int, list[str]]:
    """The children that a process's main thread has started, each with its command.

    Raises:
        OSError: The process is gone.
    """
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it has just ended
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().rstrip("\0").split("\0")
    return found


def thread_states(pid: int) -> set[str]:
    """The states of a process's threads: T for stopped, Z for one that nobody has waited for; none when it is gone."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has just ended
            states.add(stat_fields(stat)[0])
    return states


def is_alive(pid: int) -> bool:
    """Return True if a process is running or stopped, not gone or a zombie."""
    return not thread_states(pid) <= {"Z"}


def processor_s(pid: int) -> float:
    """Seconds of processor that a process has used, and all that it, or one of those, has started. 0: it is gone."""
    ticks, processes = 0, [pid]
    for process in processes:
        with suppress(OSError):  # it has just ended
            ticks += sum(map(int, stat_fields(Path(f"/proc/{process}/stat"))[11:15]))  # own, and of those that ended
            for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
                with suppress(OSError):
                    processes += map(int, (task / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def threads_below(pid: int) -> set[int]:
    """The threads of a process and of all that it, or one of those, has started; at least its own first one."""
    found, processes = {pid}, [pid]
    for process in processes:
        for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
            found.add(int(task.name))
            with suppress(OSError):  # it has just ended
                processes += map(int, (task / "children").read_text().split())
    return found

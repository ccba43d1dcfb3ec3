# SPDX-License-Identifier: Apache-2.0
"""Process data from Linux's /proc that tests and benchmarks read: memory, children, states."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from runtime.procfs import stat_fields


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
    """The states of a process's threads: T for stopped, Z for a zombie. Empty if the process has ended."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has just ended
            states.add(stat_fields(stat)[0])
    return states


def is_alive(pid: int) -> bool:
    """Return True if a process is running or stopped, not gone or a zombie."""
    return not thread_states(pid) <= {"Z"}

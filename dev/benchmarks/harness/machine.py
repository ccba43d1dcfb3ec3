# SPDX-License-Identifier: Apache-2.0
"""The machine: what it is, what it is doing, what a process uses of it. Linux, from /proc."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from dev.peers.java import java_executable
from runtime.procfs import stat_fields

TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PART: Final = re.compile(r"(?:cli\.main|cli\.child) (\w+)|(eventlog\.worker|pyspark\.daemon|worker_daemon)")
PACKAGES: Final = ("uvloop", "uvicorn", "fastapi", "httptools", "pyspark", "delta-spark", "deltalake")


def describe() -> dict[str, Any]:
    """Cores, processor, memory, kernel and versions."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    java = subprocess.run([java_executable(), "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model.group(1) if model else platform.machine(),
        "memoryGib": round(int(memory.group(1)) / 1024**2, 1) if memory else None,
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else None,
        "rocketmq": "5.5.0",
        "packages": {name: version(name) for name in PACKAGES},
    }


def load_average() -> tuple[float, float, float]:
    """Return the load average of 1, 5 and 15 minutes."""
    return os.getloadavg()


def busy_core_seconds() -> float:
    """Processor seconds that the whole machine has spent on anything, stolen time included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split(None, 9)[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Usage(msgspec.Struct, frozen=True):
    """Memory that a process and its descendants hold, and processor time that they have used."""

    cpu_seconds: float
    resident_bytes: int


def tree(*pids: int) -> set[int]:
    """These processes and all below them."""
    return _tree(pids)[0]


def usage_of(*pids: int) -> Usage:
    """Usage of process trees, each process counted once."""
    members, found = _tree(pids)
    mine = [found[pid] for pid in members if pid in found]
    return Usage(sum(usage.cpu_seconds for usage in mine), sum(usage.resident_bytes for usage in mine))


def proportional_bytes(*pids: int) -> int:
    """Memory of process trees; a page that several processes share counts once (proportional set size)."""
    sizes = []
    for pid in tree(*pids):
        with suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            sizes.append(int(rollup.partition("\nPss:")[2].split(None, 1)[0]) * 1024)
    return sum(sizes)


def cpu_by_part(*pids: int) -> dict[str, float]:
    """Processor seconds of process trees so far, by part of routelake: ``gateway``, ``fold``, ``java`` and so on."""
    members, found = _tree(pids)
    seconds: dict[str, float] = {}
    for pid in members & found.keys():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
            named = _PART.search(command)
            part = named[named.lastindex or 0] if named else Path(command.partition(" ")[0]).name
            seconds[part] = seconds.get(part, 0.0) + found[pid].cpu_seconds
    return seconds


def _tree(pids: Sequence[int]) -> tuple[set[int], dict[int, Usage]]:
    children: dict[int, list[int]] = {}
    found: dict[int, Usage] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat_fields(stat)
            pid = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            found[pid] = Usage((int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * _PAGE_BYTES)
    members, waiting = set[int](), list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in members:
            members.add(pid)
            waiting += children.get(pid, [])
    return members, found


class Meter:
    """Usage of processes between two points, and of the whole machine meanwhile.

    For example::

        meter = Meter(server_pid)
        ...
        spent, busy = meter.read()
    """

    def __init__(self, *pids: int) -> None:
        """Start."""
        self._pids = pids
        self._busy = busy_core_seconds()
        self._cpu = usage_of(*pids).cpu_seconds

    def read(self) -> tuple[float, float]:
        """(processor seconds of these processes, of everything on the machine) since the start."""
        return usage_of(*self._pids).cpu_seconds - self._cpu, busy_core_seconds() - self._busy


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder, whatever vanishes meanwhile; one with several names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                found = path.stat()
                sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())

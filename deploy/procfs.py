"""What Linux says of a process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def stat_fields(stat: Path) -> list[str]:
    """The fields of a ``/proc/…/stat`` after the name, which may hold anything: state, parent, ... (proc(5)).

    Raises:
        OSError: The process or thread is gone.
    """
    return stat.read_text().rpartition(")")[2].split()


def thread_states(pid: int) -> set[str]:
    """The states of a process's threads: T for stopped, Z for one that nobody has waited for; none when it is gone."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has just ended
            states.add(stat_fields(stat)[0])
    return states

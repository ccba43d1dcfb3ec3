# SPDX-License-Identifier: Apache-2.0
"""Checks whether a machine and a data directory fit this release, and can return to an older one. Changes nothing."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import stat
import sys
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from lake.checkpoint import CHECKPOINT_FORMAT, read_marker
from lake.delta.ddl import LAKE_FILE
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from ops.doctor.examine import Examination
from ops.doctor.findings import Kind
from runtime.java import find_java
from runtime.version import PROGRAM
from schemas.errors import SetupError
from schemas.events import EVENT_LEVEL

OLDEST_PYTHON: Final = (3, 11)
FILES: Final = 16_384
"""Number of open files that a gateway with many brokers and clients needs."""
LEAST_MEMORY_BYTES: Final = 4 * 2**30
"""Minimum memory of a machine for one gateway and the fold."""


class Level(StrEnum):
    """Result level of one check."""

    OK = "ok"
    NOTE = "note"
    WRONG = "WRONG"


class Check(NamedTuple):
    """Result of one check: level, subject, and a text with advice if there is a problem."""

    level: Level
    subject: str
    text: str


def preflight(found: Examination) -> list[Check]:
    """Check the machine and an examined data directory for this release."""
    return [*_machine(found.data_dir), *_data(found), *_way_back(found)]


def preflight_of_machine(data_dir: Path) -> list[Check]:
    """Judge the machine for a data directory without data, before the first start."""
    text = (
        f"no lake and no event log in {data_dir}. The first start creates them. If you expected data, check the path."
    )
    return [*_machine(data_dir), Check(Level.NOTE, "data directory", text)]


def _machine(data_dir: Path) -> list[Check]:
    is_new = sys.version_info >= OLDEST_PYTHON
    too_old = " is too old. Install Python 3.11 or newer."
    checks = [_judged("Python", platform.python_version(), too_old, is_well=is_new, otherwise=Level.WRONG)]
    if find_spec("pyspark") is not None:
        try:
            java = find_java()
            checks.append(Check(Level.OK, "Java", f"{java.version} in {java.home}"))
        except SetupError as error:
            checks.append(Check(Level.WRONG, "Java", str(error)))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = f". A gateway and the fold need 4 GiB. See `{PROGRAM} plan`."
    checks.append(_judged("memory", f"{memory / 2**30:.1f} GiB", needed, is_well=memory >= LEAST_MEMORY_BYTES))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = files in (resource.RLIM_INFINITY, -1) or files >= FILES
    shown = "unlimited" if files == resource.RLIM_INFINITY else f"{files:,}"
    advice = f". Set LimitNOFILE={FILES} or `ulimit -n {FILES}`."
    checks.append(_judged("open files", f"at most {shown}", advice, is_well=enough))
    place = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free, used = shutil.disk_usage(place).free, _bytes_of(data_dir)
    text = f"{free / 1e9:.1f} GB free, {used / 1e9:.2f} GB used by {data_dir}"
    no_room = f". There is no room for a backup here: name another disk in `{PROGRAM} backup`."
    checks.append(_judged("disk", text, no_room, is_well=free >= used))
    return checks


def _judged(subject: str, text: str, advice: str, *, is_well: bool, otherwise: Level = Level.NOTE) -> Check:
    return Check(Level.OK, subject, text) if is_well else Check(otherwise, subject, text + advice)


def _bytes_of(folder: Path) -> int:
    """Size of all files below a folder. Files and folders that a running fold deletes meanwhile are left out."""
    size_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found = Path(place, name).lstat()
                size_bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size_bytes


def _data(found: Examination) -> list[Check]:
    """Check whether gateway and fold of this release start on the data directory."""
    formats = [finding.what for finding in found.findings if finding.kind is Kind.FORMAT]
    if formats:
        return [Check(Level.WRONG, "data directory", f"{formats[0]} {_OTHERWISE}")]
    if refused := [finding.what for finding in found.findings if finding.kind is Kind.LOG_FORMAT]:
        return [Check(Level.WRONG, "event log", refused[0])]
    level = _event_level(found)
    if level > EVENT_LEVEL:
        text = (
            f"the event log may contain events of level {level}, and this release reads only up to {EVENT_LEVEL}. "
            f"Install a newer release. {_OTHERWISE}"
        )
        return [Check(Level.WRONG, "data directory", text)]
    if not found.is_well:
        text = "something is wrong. Run doctor without --preflight, and repair it first."
        return [Check(Level.WRONG, "data directory", text)]
    checkpoint = _checkpoint_format(found)
    if checkpoint is not None and checkpoint > CHECKPOINT_FORMAT:
        text = (
            f"{found.checkpoint_dir} has format {checkpoint}, and this release reads only up to {CHECKPOINT_FORMAT}. "
            "Delete this folder before you start the fold. The fold rebuilds it from the tables, and nothing is lost."
        )
        return [Check(Level.WRONG, "checkpoint", text)]
    last = found.last
    state = "empty" if last is None else f"epoch {last.epoch}, log offset {last.log_offset}"
    return [Check(Level.OK, "data directory", f"{state}; this release reads it")]


_OTHERWISE: Final = f"Otherwise restore a backup that this release wrote: `{PROGRAM} restore BACKUP`."


def _event_level(found: Examination) -> int:
    """Event level of the newest fold that has opened this lake. Without a lake, the level of this release."""
    marker = found.lake_dir / LAKE_FILE
    try:
        return int(json.loads(marker.read_text(encoding="utf-8")).get("events", 1)) if marker.exists() else EVENT_LEVEL
    except (OSError, ValueError):
        return EVENT_LEVEL  # the examination has a finding about it


def _checkpoint_format(found: Examination) -> int | None:
    """Format of the fold's checkpoint, or None if it is missing or unreadable. The fold then writes a new one."""
    try:
        return read_marker(found.checkpoint_dir).format
    except (OSError, ValueError):
        return None


def _way_back(found: Examination) -> list[Check]:
    """Check what older releases cannot read after this release has started."""
    notes = []
    level = _event_level(found)
    if level < EVENT_LEVEL:
        text = (
            f"the fold of this release raises the level of events from {level} to {EVENT_LEVEL}. After that, older "
            f"releases refuse this data directory. Take a backup first: `{PROGRAM} backup BACKUP`."
        )
        notes.append(("way back", text))
    checkpoint = _checkpoint_format(found)
    if checkpoint is not None and checkpoint < CHECKPOINT_FORMAT:
        text = (
            f"the fold of this release writes its checkpoint in format {CHECKPOINT_FORMAT}, not {checkpoint}. "
            f"Before you start an older release again, delete {found.checkpoint_dir}. Nothing is lost by that."
        )
        notes.append(("way back", text))
    if found.last is not None and found.last.rules_version != STATE_MACHINE_VERSION:
        text = (
            f"the rules change from {found.last.rules_version} to {STATE_MACHINE_VERSION}: gateways serve the "
            "committed view until fold and gateway have the same release. Change the release of the fold first."
        )
        notes.append(("gateways", text))
    checks = [Check(Level.NOTE, *note) for note in notes]
    if level == EVENT_LEVEL and checkpoint in (None, CHECKPOINT_FORMAT):
        checks.append(Check(Level.OK, "way back", "no format changes. The old release starts on this data directory"))
    return checks

# SPDX-License-Identifier: Apache-2.0
"""A copy of this routelake that leaves something out, to be compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dev.peers.routelake import ROOT

NO_INTERVALS = {
    "lake/history/intervals.py": """
IntervalKeeper.step = lambda self, epoch, version: None
""",
}


def changed_copy(folder: Path, ends: Mapping[str, str]) -> Path:
    """Make a copy; the unchanged parts are links.

    Args:
        folder: Folder of the copy, which exists and is empty.
        ends: File -> text appended to it.

    Returns:
        The folder.
    """
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    for name, more in ends.items():
        room = folder
        for part in Path(name).parts[:-1]:  # a folder of links in place of the link
            room /= part
            if room.is_symlink():
                original = room.readlink()
                room.unlink()
                room.mkdir()
                for path in original.iterdir():
                    (room / path.name).symlink_to(path)
        changed = folder / name
        text = changed.read_text(encoding="utf-8")
        changed.unlink()
        changed.write_text(text + more, encoding="utf-8")
    return folder

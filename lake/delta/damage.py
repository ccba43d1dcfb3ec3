# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a table that cannot be opened: which file, in words.

delta-rs says what it failed at, in its own terms and with a trace of its own frames, and not where. A commit of no
bytes, which a power cut leaves, is one that changed nothing to it: the table would be taken for an older one.

Source: the Delta transaction protocol, "Delta Log Entries": names count up without a gap, each is JSON, line by line.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from lake.delta.actions import (
    LOG_FOLDER,
    READER_VERSION,
    Action,
    checkpoint_name,
    entry_name,
    read_actions,
    read_last_checkpoint,
)
from schemas.errors import RoutelakeError, one_line


class DamagedTableError(RoutelakeError):
    """A file of a table's log is not as it was written; the message names it."""


def check_commits(table: Path) -> None:
    """Read the commits since the last checkpoint: those that tell what a table holds now.

    Raises:
        DamagedTableError: One is torn, or empty, or of a protocol that is not ours.
        OSError: One cannot be read.
    """
    version = _checkpointed(table) + 1
    while (entry := table / entry_name(version)).exists():
        text = entry.read_bytes()
        try:
            actions = read_actions(text)
        except ValueError as error:
            raise DamagedTableError(f"{entry} is torn: it ends after {len(text)} bytes, within a commit") from error
        for action in actions:
            check_protocol(table, action)
        version += 1


def check_protocol(table: Path, action: Action) -> None:
    """Refuse a table that another program has changed to a newer protocol.

    Raises:
        DamagedTableError: It has, in this action.
    """
    protocol = action.protocol
    if protocol is not None and protocol.min_reader_version > READER_VERSION:
        features = f" ({', '.join(protocol.reader_features)})" if protocol.reader_features else ""
        raise DamagedTableError(
            f"{table} needs version {protocol.min_reader_version} of the Delta protocol{features} to be read, and "
            f"routelake knows {READER_VERSION}: another program has changed it"
        )


def damage_in(table: Path) -> str | None:
    """The file of a table's log that is damaged or missing, in words; None if there is none."""
    try:
        table.stat()
        check_commits(table)
        check_names(table)
    except (OSError, DamagedTableError) as found:
        return one_line(found)
    return None


def explain(table: Path, error: BaseException) -> str:
    """Why a table cannot be opened, in one line: the file that is damaged, else what the library says."""
    return damage_in(table) or one_line(error)


def check_names(table: Path) -> None:
    """Look for a commit that is missing between others, or the last checkpoint.

    Raises:
        DamagedTableError: One is.
        OSError: The folder of the log cannot be read.
    """
    checkpoint = _checkpointed(table)
    if checkpoint >= 0:
        (table / checkpoint_name(checkpoint)).stat()
    versions = sorted(int(entry.stem) for entry in (table / LOG_FOLDER).glob("*.json") if entry.stem.isdigit())
    for before, after in itertools.pairwise(versions):
        if after != before + 1 and after > checkpoint:
            raise DamagedTableError(f"{table / entry_name(before + 1)} is missing, though {entry_name(after)} is there")


def _checkpointed(table: Path) -> int:
    """Version of the last checkpoint; -1 without one, or where the pointer to it is torn: then all commits count."""
    try:
        last = read_last_checkpoint(table)
    except (OSError, ValueError):
        return -1
    return -1 if last is None else last.version

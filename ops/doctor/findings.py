# SPDX-License-Identifier: Apache-2.0
"""Kinds of findings: each with its meaning and the advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Kinds of findings; the value is what a program may compare."""

    RESTORE = "restore-unfinished"
    FORMAT = "lake-format"
    LOG_MISSING = "log-missing"
    LOG_UNREADABLE = "log-damaged"
    LOG_SHORT = "log-ends-before-tables"
    LOG_LACKS = "log-lacks-records"
    LOG_OTHER = "log-of-another-lake"
    LOG_WAL = "log-wal-large"
    RECORD = "record-damaged"
    TABLE = "table-missing"
    ENTRY = "commit-damaged"
    CHECKPOINT_FILE = "delta-checkpoint-damaged"
    POINTER = "last-checkpoint-damaged"
    FILE = "file-lost"
    OLD_FILE = "old-file-lost"
    BEHIND = "table-behind-epoch"
    AHEAD = "event-time-ahead"
    FOLD_CHECKPOINT = "checkpoint-unusable"


MEANS: Final = {
    Kind.RESTORE: "nothing starts on what a restore that was cut off has left",
    Kind.FORMAT: "neither gateway nor fold starts on it",
    Kind.LOG_MISSING: "no gateway and no fold starts: offsets would begin anew, below what the tables hold",
    Kind.LOG_UNREADABLE: "no gateway and no fold starts on this log; gateways that run refuse writes",
    Kind.LOG_SHORT: "records that the tables hold are not on the log: no gateway and no fold starts on it",
    Kind.LOG_LACKS: "the fold cannot go on from these tables: what came between them and the log is gone",
    Kind.LOG_OTHER: "the tables were not folded from this log: a new write could not be told from an old one",
    Kind.LOG_WAL: "it takes room, and is read at each start; nothing is lost",
    Kind.RECORD: "the fold puts it into quarantineTable and goes on; what it said is lost",
    Kind.TABLE: "gateways that run serve the last routes; none starts, nor does the fold",
    Kind.ENTRY: "gateways that run serve the last routes; none starts, nor does the fold",
    Kind.CHECKPOINT_FILE: "versions that only it leads to cannot be read",
    Kind.POINTER: "readers list the whole log instead; the fold writes it anew",
    Kind.FILE: "rows of the newest epoch are gone: gateways that run serve the last routes; none starts",
    Kind.OLD_FILE: "reads of the past that need it fail; routes are not touched",
    Kind.BEHIND: "the table was lost or restored alone: the fold does not start",
    Kind.AHEAD: "a clock is wrong, or was when it wrote: times in tables and history are later than they were",
    Kind.FOLD_CHECKPOINT: "nothing: the fold makes it anew from tables and log at its next start",
}

_RESTORE: Final = "restore the lake from a backup (`./routelake restore`, with --keep-log if the log is well)"
WAY_OUT: Final = {
    Kind.RESTORE: "give the restore again",
    Kind.FORMAT: "upgrade routelake, or restore lake.json from a backup",
    Kind.LOG_MISSING: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_UNREADABLE: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_SHORT: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_LACKS: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_OTHER: "put the log back that belongs to these tables, or restore both from one backup",
    Kind.LOG_WAL: "end what the finding says; the next checkpoint of SQLite begins it anew",
    Kind.RECORD: "nothing can bring it back; registrations come again within a minute, KV commands must be given again",
    Kind.TABLE: _RESTORE,
    Kind.ENTRY: _RESTORE,
    Kind.CHECKPOINT_FILE: _RESTORE,
    Kind.POINTER: "nothing",
    Kind.FILE: _RESTORE,
    Kind.OLD_FILE: "restore a backup elsewhere to read that past; here it stays lost",
    Kind.BEHIND: _RESTORE,
    Kind.AHEAD: "compare clocks; event time goes on from where it is (docs/how-to/operate/clocks.md)",
    Kind.FOLD_CHECKPOINT: "nothing",
}
"""What is left where no repair is known."""

HARMLESS: Final = frozenset({Kind.POINTER, Kind.FOLD_CHECKPOINT})
"""What the next start of the fold makes good by itself."""

REMAINS: Final = frozenset({Kind.RECORD, Kind.OLD_FILE, Kind.LOG_WAL, Kind.AHEAD})
"""What nothing here can make good, and nothing stops for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: which.
        where: the file or folder.
        what: what is wrong with it, as the rest of a sentence that begins with `where`.
        table: its name, of a finding about one.
        version: of that table, of a finding about a commit.
        file: path relative to the table, of a finding about a data file.
    """

    kind: Kind
    where: str
    what: str
    table: str | None = None
    version: int | None = None
    file: str | None = None

# SPDX-License-Identifier: Apache-2.0
"""Kinds of findings, each with its meaning and advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runtime.version import PROGRAM


class Kind(StrEnum):
    """Kinds of findings. Programs may compare the value."""

    RESTORE = "restore-unfinished"
    FORMAT = "lake-format"
    LOG_MISSING = "log-missing"
    LOG_FORMAT = "log-format"
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
    Kind.RESTORE: "nothing starts after an interrupted restore",
    Kind.FORMAT: "neither gateway nor fold starts with it",
    Kind.LOG_MISSING: "no gateway and no fold starts: offsets would restart below those that the tables include",
    Kind.LOG_FORMAT: "no gateway and no fold starts with this event log; nothing is lost",
    Kind.LOG_UNREADABLE: "no gateway and no fold starts with this event log; running gateways refuse writes",
    Kind.LOG_SHORT: "records that the tables include are not on the event log: no gateway and no fold starts with it",
    Kind.LOG_LACKS: "the fold cannot continue from these tables: the records between them and the event log are lost",
    Kind.LOG_OTHER: "the tables do not belong to this event log: a new write could be taken for an old one",
    Kind.LOG_WAL: "it takes disk space, and is read at each start; nothing is lost",
    Kind.RECORD: "the fold puts it into quarantineTable and continues; its content is lost",
    Kind.TABLE: "running gateways serve the last routes; no gateway and no fold starts",
    Kind.ENTRY: "running gateways serve the last routes; no gateway and no fold starts",
    Kind.CHECKPOINT_FILE: "versions that need it cannot be read",
    Kind.POINTER: "readers list the whole Delta log instead; the fold writes it again",
    Kind.FILE: "rows of the newest epoch are lost: running gateways serve the last routes; no gateway starts",
    Kind.OLD_FILE: "history reads that need it fail; routes are not affected",
    Kind.BEHIND: "the table was lost, or restored without the others: the fold does not start",
    Kind.AHEAD: "a clock is or was wrong: times in tables and history are too late",
    Kind.FOLD_CHECKPOINT: "nothing is lost: the fold rebuilds it from tables and event log at its next start",
}

_RESTORE: Final = f"restore the lake from a backup (`{PROGRAM} restore`, with --keep-log if the event log is intact)"
WAY_OUT: Final = {
    Kind.RESTORE: "run the restore again",
    Kind.FORMAT: "upgrade routelake, or restore lake.json from a backup",
    Kind.LOG_MISSING: "if the event log is in Kafka, name it with --event-log URL; otherwise restore lake and log from "
    "one backup, or start with a new data directory",
    Kind.LOG_FORMAT: "use the event log or the release that this finding names, also for this command",
    Kind.LOG_UNREADABLE: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_SHORT: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_LACKS: "restore lake and log from one backup, or start with a new data directory",
    Kind.LOG_OTHER: "restore the event log that belongs to these tables, or restore both from one backup",
    Kind.LOG_WAL: "end the process or read that the finding names; then SQLite resets the WAL at its next checkpoint",
    Kind.RECORD: "it cannot be recovered; brokers register again within a minute, repeat lost KV commands",
    Kind.TABLE: _RESTORE,
    Kind.ENTRY: _RESTORE,
    Kind.CHECKPOINT_FILE: _RESTORE,
    Kind.POINTER: "nothing",
    Kind.FILE: _RESTORE,
    Kind.OLD_FILE: "restore a backup into another data directory to read that history; here it stays lost",
    Kind.BEHIND: _RESTORE,
    Kind.AHEAD: "compare clocks; event time continues from its value (docs/how-to/operate/clocks.md)",
    Kind.FOLD_CHECKPOINT: "nothing",
}
"""Advice for kinds without a known repair."""

HARMLESS: Final = frozenset({Kind.POINTER, Kind.FOLD_CHECKPOINT})
"""Kinds that the next start of the fold repairs."""

REMAINS: Final = frozenset({Kind.RECORD, Kind.OLD_FILE, Kind.LOG_WAL, Kind.AHEAD})
"""Kinds that cannot be repaired, but do not stop any process."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        kind: kind of the finding.
        where: the file or folder.
        what: description, as the rest of a sentence that begins with `where`.
        table: name of the table, for a finding about a table.
        version: version of the table, for a finding about a commit.
        file: path relative to the table, for a finding about a data file.
    """

    kind: Kind
    where: str
    what: str
    table: str | None = None
    version: int | None = None
    file: str | None = None

# SPDX-License-Identifier: Apache-2.0
"""The block `data-files`: every file of a data directory. A test compares it with real ones (`test_files.py`).

Names come from the modules that write the files, so a renamed file changes the page.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from cli.data_options import COPY_FOLDER
from dev.reference.markdown import table
from eventlog.sqlite.start import LOCK_SUFFIX
from lake.delta.ddl import LAKE_FILE, LOCK_FILE
from lake.write.staging import STAGING_FOLDER
from lake.write.synced import SYNCED_FILE
from ops.backup.manifest import LAKE, LOG
from ops.backup.marker import MARKER
from schemas.tables import FOLD_FAILURE_FILE, FOLD_HASTEN_FILE, FOLD_STATUS_FILE

_STOPPED: Final = "yes, while the fold is stopped"


class DataFile(NamedTuple):
    """Files of a data directory.

    Attributes:
        patterns: Paths below the data directory, as shell patterns. A path may be a folder with everything in it.
        content: Contents.
        writer: Process or command that writes them.
        deletable: Whether an operator may delete them, and the effect.
        size: Size, or the cause of its growth.
    """

    patterns: tuple[str, ...]
    content: str
    writer: str
    deletable: str
    size: str


FILES: Final = (
    DataFile(
        (LOG,),
        "the event log in SQLite, unless `--event-log` names another",
        "process `event-log` of the gateways",
        "no. See [The event log is lost](../how-to/operate/repair-data.md#the-event-log-is-lost)",
        "370 MB a day for 20 brokers with a heartbeat each second. It does not shrink",
    ),
    DataFile(
        (f"{LOG}-wal", f"{LOG}-shm"),
        "the newest part of the event log, and its index. They may stay after the last stop",
        "process `event-log` of the gateways",
        "no. They belong to the event log",
        "a few MiB. See [the alert](../how-to/operate/alerts/RoutelakeEventLogWalGrows.md)",
    ),
    DataFile(
        (f"{LOG}{LOCK_SUFFIX}",),
        "a lock that shows which process has the event log open",
        "process `event-log` of the gateways",
        "yes, while all processes are stopped",
        "under 1 KiB",
    ),
    DataFile(
        (f"{LAKE}/*Table",),
        "the state tables, `routeChangeTable`, `routeCommitTable` and `quarantineTable`",
        "fold",
        "no. Routes would come back with the next registrations, but the history would be lost",
        "160 MB a day for 20 brokers with a heartbeat each second"
        " ([retention](../how-to/operate/retention.md#disk-that-is-needed))",
    ),
    DataFile(
        (f"{LAKE}/*History",),
        "the [interval tables](tables.md#intervals), made from the changes. They are not in backups",
        "fold",
        f"{_STOPPED}. The fold makes them again",
        "grows with the changes of each key",
    ),
    DataFile(
        (f"{LAKE}/{STAGING_FOLDER}",),
        "commits before they are linked into their table",
        "fold",
        f"{_STOPPED}. It is created at each start",
        "none of its own: the files are the same as those of the tables",
    ),
    DataFile(
        (f"{LAKE}/{LAKE_FILE}",),
        "the format of the lake. It is in backups",
        "fold",
        "no. A lake without it is read as one of the present format",
        "under 1 KiB",
    ),
    DataFile(
        (f"{LAKE}/{SYNCED_FILE}",),
        "the versions up to which the tables are on disk",
        "fold",
        "yes. The next start of the fold checks more",
        "a few KiB",
    ),
    DataFile(
        (f"{LAKE}/{FOLD_STATUS_FILE}", f"{LAKE}/{FOLD_FAILURE_FILE}", f"{LAKE}/{FOLD_HASTEN_FILE}"),
        "progress of the fold, its last failure, and the time of the last read that waited for an epoch. With"
        f" `--lake URL` they are in `{COPY_FOLDER}`",
        "fold, gateway",
        "yes. They are written again",
        "a few KiB",
    ),
    DataFile(
        (f"{LAKE}/{LOCK_FILE}",),
        "a lock that shows which process writes the lake",
        "fold",
        _STOPPED,
        "under 1 KiB",
    ),
    DataFile(
        (f"{LAKE}/live-view-differences-*.json",),
        "the last rows in which a gateway and the tables differed. It exists only after"
        " [a difference](../how-to/operate/live-view-differs.md). With `--lake URL` it is in the data directory of the"
        " gateway",
        "gateway",
        "yes, after you have reported the difference",
        "a few KiB",
    ),
    DataFile(
        (COPY_FOLDER,),
        "with `--lake URL`, the commits before they are published"
        " ([object store](../how-to/operate/object-store.md#the-copy-of-the-fold))",
        "fold",
        f"{_STOPPED}. The next start fetches it again",
        "the newest version of all tables, and the last two hours",
    ),
    DataFile(
        ("checkpoints",),
        "Spark's checkpoint of the fold ([checkpoints](../../checkpoints/README.md))",
        "fold",
        f"{_STOPPED}. The fold makes it again from the tables",
        "grows with the number of topics",
    ),
    DataFile(
        ("scratch",),
        "temporary files of Spark. If the data directory is mounted `noexec`, they are in `TMPDIR`",
        "fold",
        f"{_STOPPED}. It is emptied at each start",
        "17 MB, and more during large batches",
    ),
    DataFile(
        (MARKER, f"{MARKER}.*", "before-restore-*"),
        "the plan of a restore that is running or was interrupted, and the data before the restore",
        "`routelake restore`",
        "`before-restore-*` only, if `restore.json` does not exist",
        "as the previous data",
    ),
    DataFile(
        ("before-repair-*", f"{LAKE}/before-repair-*"),
        "parts that a repair removed",
        "`routelake doctor`",
        "yes. No process reads them",
        "as the removed parts",
    ),
)


def declared(path: str) -> DataFile | None:
    """Return the entry of a file.

    Args:
        path: Path below the data directory.
    """
    for entry in FILES:
        if any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*") for pattern in entry.patterns):
            return entry
    return None


def block() -> str:
    """Return a row for each entry."""
    rows = (
        (", ".join(f"`{name}`" for name in one.patterns), one.content, one.writer, one.deletable, one.size)
        for one in FILES
    )
    return table(("path", "content", "written by", "may be deleted", "size"), rows)


def undeclared(data_dir: Path) -> list[str]:
    """Return the files of a data directory that no entry declares.

    Args:
        data_dir: Data directory of a running or stopped routelake.
    """
    paths = (path.relative_to(data_dir).as_posix() for path in data_dir.rglob("*") if not path.is_dir())
    return sorted(path for path in paths if declared(path) is None)

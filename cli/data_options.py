# SPDX-License-Identifier: Apache-2.0
"""Options for the places of the data. Gateways, the fold and backups share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple

from cli.options import Options, check_path, option, usable_folder
from eventlog.urls import with_config
from ops.backup.marker import refuse_unfinished_restore
from runtime.machine import guard_data
from schemas.errors import SetupError

DataDir = Annotated[
    Path,
    option(
        "--data-dir", metavar="FOLDER", callback=usable_folder, help="Folder of the event log, tables and checkpoints."
    ),
]
DataMode = Annotated[
    str,
    option(
        "--data-mode",
        metavar="OCTAL",
        help="Access mode of new files in the data directory: 700 the owner, 750 also the group, 755 all users.",
    ),
]
LogUrl = Annotated[
    str,
    option(
        "--event-log",
        metavar="URL",
        help="Event log: sqlite:///abs/path.db or kafka://host:port/topic. Default: SQLite in the data directory.",
    ),
]
LogConfig = Annotated[
    Path | None,
    option(
        "--event-log-config",
        metavar="FILE",
        help="Kafka client properties (TLS, SASL) of an event log in Kafka. See docs/reference/settings.md.",
    ),
]
LakeUrl = Annotated[
    str,
    option(
        "--lake",
        metavar="URL",
        help="Location of the tables: a folder, or s3://, gs:// or az://bucket/prefix. Default: in the data directory.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    """The options of a data directory and its event log."""

    panel: ClassVar[str] = "Data"

    data_dir: DataDir = Path("data")
    data_mode: DataMode = "700"
    event_log: LogUrl = ""
    event_log_config: LogConfig = None

    @property
    def log(self) -> str:
        """URL of the event log with its file of client properties. Empty: SQLite in the data directory.

        Raises:
            SetupError: --event-log and --event-log-config cannot be used together.
        """
        return with_config(self.event_log, self.event_log_config)

    @property
    def log_url(self) -> str:
        """URL of the event log, in any place. Raises SetupError."""
        return log_url(self.data_dir, self.log)

    def make(self) -> None:
        """Create the data directory. Raises SetupError if it cannot be written, or if a restore was interrupted."""
        refuse_unfinished_restore(self.data_dir)
        guard_data(self.data_dir, self.data_mode)


@dataclass(frozen=True, kw_only=True)
class DataOptions(LogOptions):
    """The options of a data directory, its event log and its tables."""

    lake: LakeUrl = ""

    @property
    def lake_place(self) -> LakePlace:
        """Place of the tables. Raises SetupError for an unusable name."""
        return lake_place(self.data_dir, self.lake)


class LakePlace(NamedTuple):
    """Place of the tables.

    Attributes:
        folder: Folder of the tables. For tables at a URL, the data directory of the gateway.
        url: URL in an object store, or empty for a folder.
    """

    folder: Path
    url: str

    @property
    def copy_folder(self) -> Path:
        """Folder that a fold writes: the tables, or its copy of them."""
        return self.folder / COPY_FOLDER if self.url else self.folder


def lake_place(data_dir: Path, lake: str) -> LakePlace:
    """Place of the lake: the value of --lake, or in the data directory. Raises SetupError for an unusable name."""
    if "://" in lake:
        return LakePlace(data_dir.resolve(), lake.rstrip("/"))
    if lake:
        check_path(Path(lake), "--lake")
    return LakePlace((Path(lake) if lake else data_dir / "lake").resolve(), "")


COPY_FOLDER: Final = "lake-copy"
"""Copy of a lake at a URL, in the fold's data directory. It can be deleted while the fold is stopped, and need not be
backed up."""


def check_there(lake_dir: Path, data_dir: Path) -> None:
    """Raise SetupError if the data directory has no lake."""
    if not lake_dir.is_dir():
        raise SetupError(f"there is no lake in {data_dir}. Set --data-dir to the data directory of a routelake.")


def log_url(data_dir: Path, url: str) -> str:
    """URL of the event log: the value of --event-log, or SQLite in the data directory."""
    return url or f"sqlite://{data_dir.resolve()}/events.db"

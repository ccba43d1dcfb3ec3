# SPDX-License-Identifier: Apache-2.0
"""The options of where data are, which gateways, the fold and back-ups have alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from cli.groups import Options, with_options
from cli.options import DataDir, DataMode, LakePlace, LakeUrl, LogConfig, LogUrl, lake_place, log_url
from eventlog.urls import is_kafka, parse_url, with_config
from ops.backup.marker import refuse_unfinished_restore
from runtime.machine import guard_data

_OPTIONS: Final[Options] = (
    ("data_dir", DataDir, Path("data")),
    ("data_mode", DataMode, "700"),
    ("log", LogUrl, ""),
    ("log_config", LogConfig, None),
    ("lake", LakeUrl, ""),
)


class DataOptions(NamedTuple):
    """What was said of it.

    Attributes:
        data_dir: The data directory.
        data_mode: Of what is made there, in octal.
        log: URL of the event log, with its file of client properties; empty: SQLite in the data directory.
        lake: Folder or URL of the tables; empty: in the data directory.
    """

    data_dir: Path
    data_mode: str
    log: str
    lake: str

    @classmethod
    def of(cls, values: dict[str, Any]) -> DataOptions:
        """From what typer found; takes it out of the values. What a command does not take is as by default.

        Raises:
            SetupError: --event-log and --event-log-config do not fit together.
        """
        data_dir, data_mode, log, log_config, lake = (values.pop(name, default) for name, _, default in _OPTIONS)
        return cls(data_dir, data_mode, with_config(log, log_config), lake)

    @property
    def log_url(self) -> str:
        """Of the event log, wherever it is."""
        return log_url(self.data_dir, self.log)

    @property
    def lake_place(self) -> LakePlace:
        """Where the tables are."""
        return lake_place(self.data_dir, self.lake)

    def make(self) -> None:
        """Make the data directory. Raises SetupError when it cannot be written, or a restore into it was cut off."""
        refuse_unfinished_restore(self.data_dir)
        guard_data(self.data_dir, self.data_mode)

    def arguments(self) -> list[str]:
        """The same for a process of its own. What that has in its environment counts less."""
        url = self.log_url
        config = parse_url(url).config if is_kafka(url) else ""
        return [
            *("--data-dir", str(self.data_dir), "--data-mode", self.data_mode, "--event-log", url),
            *(["--event-log-config", config] if config else []),
            *(["--lake", self.lake] if self.lake else []),
        ]


with_data = with_options("data", _OPTIONS, DataOptions.of)
"""Gives a command ``data``, a `DataOptions`."""
with_data_but_lake = with_options("data", _OPTIONS[:-1], DataOptions.of)
"""The same without --lake."""

# SPDX-License-Identifier: Apache-2.0
"""The options of the fold, which `serve` and `fold` have alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from cli import preflight
from cli.groups import Options
from cli.options import (
    DriverMemory,
    FoldNiceness,
    LivenessS,
    LogRetentionH,
    RetentionDays,
    Shards,
    TriggerMs,
    lake_place,
)

OPTIONS: Final[Options] = (
    ("trigger_ms", TriggerMs, 1_000),
    ("shards", Shards, 2),
    ("history_retention_days", RetentionDays, 30),
    ("liveness_interval_s", LivenessS, 10.0),
    ("log_retention_hours", LogRetentionH, 24.0),
    ("driver_memory", DriverMemory, "1g"),
    ("fold_niceness", FoldNiceness, 5),
)


class FoldOptions(NamedTuple):
    """What was said of the fold; each field is named as its option."""

    trigger_ms: int
    shards: int
    history_retention_days: int
    liveness_interval_s: float
    log_retention_hours: float
    driver_memory: str
    fold_niceness: int

    @classmethod
    def of(cls, values: dict[str, Any]) -> FoldOptions:
        """From what typer found; takes it out of the values."""
        return cls(*(values.pop(name) for name, _, _ in OPTIONS))

    def judge(self, data_dir: Path, lake: str, *, standby: bool = False) -> None:
        """Refuse what a fold cannot start with. Raises SetupError."""
        preflight.check_shards(self.shards)
        preflight.check_driver_memory(self.driver_memory)
        preflight.check_localhost()
        preflight.check_lake(lake_place(data_dir, lake), fold=True, standby=standby)

    def arguments(self) -> list[str]:
        """The same for a process of its own."""
        said = self._asdict().items()
        return [part for name, value in said for part in (f"--{name.replace('_', '-')}", str(value))]

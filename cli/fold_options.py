# SPDX-License-Identifier: Apache-2.0
"""The options of the fold, which `serve` and `fold` have alike."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from cli import preflight
from cli.data_options import DataOptions
from cli.groups import Options
from cli.options import (
    DriverMemory,
    FoldNiceness,
    LivenessS,
    LogRetentionH,
    Master,
    RetentionDays,
    Shards,
    SharedDir,
    SparkConfig,
    TriggerMs,
)
from pipelines.cluster.master import LOCAL, Cluster, read_cluster
from runtime.children import wait_for_orphans
from schemas.errors import SetupError

OPTIONS: Final[Options] = (
    ("trigger_ms", TriggerMs, 1_000),
    ("shards", Shards, None),
    ("history_retention_days", RetentionDays, 30),
    ("liveness_interval_s", LivenessS, 10.0),
    ("event_log_retention_hours", LogRetentionH, 24.0),
    ("driver_memory", DriverMemory, "1g"),
    ("fold_niceness", FoldNiceness, 5),
    ("master", Master, LOCAL),
    ("shared_dir", SharedDir, None),
    ("spark_config", SparkConfig, None),
)


class FoldOptions(NamedTuple):
    """What was said of the fold; each field is named as its option."""

    trigger_ms: int
    shards: int | None
    history_retention_days: int
    liveness_interval_s: float
    event_log_retention_hours: float
    driver_memory: str
    fold_niceness: int
    master: str
    shared_dir: Path | None
    spark_config: Path | None

    @classmethod
    def of(cls, values: dict[str, Any]) -> FoldOptions:
        """From what typer found; takes it out of the values."""
        return cls(*(values.pop(name) for name, _, _ in OPTIONS))

    def judge(self, data: DataOptions, *, standby: bool = False) -> None:
        """Refuse what a fold cannot start with. Raises SetupError."""
        if self.shards is not None:
            preflight.check_shards(self.shards)
        preflight.check_driver_memory(self.driver_memory)
        preflight.check_localhost()
        preflight.check_user()
        self._judge_cluster(data.data_dir)
        wait_for_orphans(data.data_dir, lambda text: print(f"routelake: {text}", file=sys.stderr, flush=True))
        preflight.check_lake(data.lake_place, fold=True, standby=standby)

    def arguments(self) -> list[str]:
        """The same for a process of its own."""
        said = ((name, value) for name, value in self._asdict().items() if value is not None)
        return [part for name, value in said for part in (f"--{name.replace('_', '-')}", str(value))]

    def cluster(self, data_dir: Path) -> Cluster | None:
        """Where executors are. Raises SetupError."""
        shared_dir = (self.shared_dir or data_dir).resolve()
        config = None if self.spark_config is None else self.spark_config.resolve()
        return read_cluster(self.master, shared_dir, config)

    def _judge_cluster(self, data_dir: Path) -> None:
        if self.cluster(data_dir) is None:
            if self.shared_dir is not None:
                raise SetupError(
                    f"--shared-dir {self.shared_dir} is for a cluster: name it with --master spark://HOST:PORT."
                )
        elif self.shared_dir is not None:
            preflight.check_folder(self.shared_dir, "--shared-dir")

# SPDX-License-Identifier: Apache-2.0
"""`routelake fold`: the fold alone."""

from __future__ import annotations

from pathlib import Path

import typer

from cli import preflight
from cli.options import (
    DataDir,
    DataMode,
    DriverMemory,
    FoldNiceness,
    LivenessS,
    LogRetentionH,
    LogUrl,
    RetentionDays,
    Shards,
    TriggerMs,
)
from cli.starting import log_url, make
from runtime.logs import configure
from runtime.secrets import drop_secrets


def fold(
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    trigger_ms: TriggerMs = 1_000,
    shards: Shards = 2,
    history_retention_days: RetentionDays = 30,
    liveness_interval_s: LivenessS = 10.0,
    log_retention_hours: LogRetentionH = 24.0,
    driver_memory: DriverMemory = "1g",
    fold_niceness: FoldNiceness = 5,
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    configure("fold")
    drop_secrets()
    preflight.check_data_dir(data_dir)
    preflight.check_log(log, data_dir)
    judge_fold(data_dir, shards, driver_memory)
    make(data_dir, data_mode)
    from pipelines.job import FoldSettings
    from pipelines.main import run_fold

    settings = FoldSettings(
        lake_dir=(data_dir / "lake").resolve(),
        checkpoint_dir=(data_dir / "checkpoints" / "fold").resolve(),
        log_url=log_url(data_dir, log),
        scratch_dir=(data_dir / "scratch").resolve(),
        shards=shards,
        trigger_ms=trigger_ms,
        liveness_interval_s=liveness_interval_s,
        retention_days=history_retention_days,
        log_retention_hours=log_retention_hours,
        driver_memory=driver_memory,
        niceness=fold_niceness,
    )
    raise typer.Exit(run_fold(settings))


def judge_fold(data_dir: Path, shards: int, driver_memory: str) -> None:
    """Refuse what a fold cannot start with. Raises SetupError."""
    preflight.check_shards(shards)
    preflight.check_driver_memory(driver_memory)
    preflight.check_localhost()
    preflight.check_lake(data_dir, fold=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fold)

# SPDX-License-Identifier: Apache-2.0
"""`routelake fold`: the fold alone."""

from __future__ import annotations

from pathlib import Path

import typer

from cli import preflight
from cli.fold_options import OPTIONS, FoldOptions
from cli.groups import with_options
from cli.options import DataDir, DataMode, LakeUrl, LogConfig, LogUrl, Standby, lake_place, log_url
from cli.starting import make
from pipelines.log.urls import with_config
from runtime.logs import configure
from runtime.secrets import drop_secrets


@with_options("options", OPTIONS, FoldOptions.of)
def fold(
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    log_config: LogConfig = None,
    lake: LakeUrl = "",
    *,
    standby: Standby = False,
    options: FoldOptions,
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    configure("fold")
    drop_secrets()
    log = with_config(log, log_config)
    preflight.check_data_dir(data_dir)
    preflight.check_log(log, data_dir)
    options.judge(data_dir, lake, standby=standby)
    make(data_dir, data_mode)
    from pipelines.job import FoldSettings
    from pipelines.main import run_fold

    place = lake_place(data_dir, lake)
    cluster = options.cluster(data_dir)
    shared_dir = data_dir.resolve() if cluster is None else cluster.shared_dir
    settings = FoldSettings(
        lake_dir=place.copy_folder,
        lake_url=place.url,
        standby=standby,
        checkpoint_dir=shared_dir / "checkpoints" / "fold",
        log_url=log_url(data_dir, log),
        scratch_dir=(data_dir / "scratch").resolve(),
        shards=options.shards or (2 if cluster is None else 0),
        cluster=cluster,
        trigger_ms=options.trigger_ms,
        liveness_interval_s=options.liveness_interval_s,
        retention_days=options.history_retention_days,
        log_retention_hours=options.log_retention_hours,
        driver_memory=options.driver_memory,
        niceness=options.fold_niceness,
    )
    raise typer.Exit(run_fold(settings))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fold)

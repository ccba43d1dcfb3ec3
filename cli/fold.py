# SPDX-License-Identifier: Apache-2.0
"""`routelake fold`: the fold alone."""

from __future__ import annotations

import typer

from cli import preflight
from cli.data_options import DataOptions, with_data
from cli.fold_options import OPTIONS, FoldOptions
from cli.groups import with_options
from cli.options import Standby
from runtime.logs import configure
from runtime.secrets import drop_secrets


@with_options("options", OPTIONS, FoldOptions.of)
@with_data
def fold(
    *,
    data: DataOptions,
    standby: Standby = False,
    options: FoldOptions,
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    configure("fold")
    drop_secrets()
    preflight.check_data_dir(data.data_dir)
    preflight.check_log(data.log, data.data_dir)
    options.judge(data, standby=standby)
    data.make()
    from pipelines.job import FoldSettings
    from pipelines.main import run_fold

    place = data.lake_place
    cluster = options.cluster(data.data_dir)
    shared_dir = data.data_dir.resolve() if cluster is None else cluster.shared_dir
    settings = FoldSettings(
        lake_dir=place.copy_folder,
        lake_url=place.url,
        standby=standby,
        checkpoint_dir=shared_dir / "checkpoints" / "fold",
        log_url=data.log_url,
        scratch_dir=(data.data_dir / "scratch").resolve(),
        shards=options.shards or (2 if cluster is None else 0),
        cluster=cluster,
        trigger_ms=options.trigger_ms,
        liveness_interval_s=options.liveness_interval_s,
        retention_days=options.history_retention_days,
        log_retention_hours=options.event_log_retention_hours,
        driver_memory=options.driver_memory,
        niceness=options.fold_niceness,
    )
    raise typer.Exit(run_fold(settings))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fold)

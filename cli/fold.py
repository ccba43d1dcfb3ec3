# SPDX-License-Identifier: Apache-2.0
"""`routelake fold`: the fold alone."""

from __future__ import annotations

from typing import Annotated

import typer

from cli import preflight
from cli.data_options import DataOptions
from cli.fold_options import FoldOptions
from cli.options import option, with_options
from runtime.logs import configure
from runtime.secrets import drop_secrets


@with_options
def fold(
    *,
    data: DataOptions,
    standby: Annotated[
        bool,
        option("--standby", help="With --lake URL: wait while another fold holds the lake, then take over."),
    ] = False,
    options: FoldOptions,
) -> None:
    """Run the fold alone: the one Spark query that writes the tables."""
    raise typer.Exit(run(data, options, standby=standby))


def run(data: DataOptions, options: FoldOptions, *, standby: bool = False) -> int:
    """Run the fold until a stop is requested. Returns the exit code. Raises SetupError."""
    configure("fold")
    drop_secrets()
    preflight.check_data_dir(data.data_dir)
    preflight.check_log(data.log, data.data_dir)
    options.validate(data, standby=standby)
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
        cores=options.fold_cores,
        liveness_interval_s=options.liveness_interval_s,
        retention_days=options.history_retention_days,
        log_retention_hours=options.event_log_retention_hours,
        driver_memory=options.driver_memory,
    )
    return run_fold(settings)

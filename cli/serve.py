# SPDX-License-Identifier: Apache-2.0
"""`routelake serve`: gateways and the fold."""

from __future__ import annotations

from pathlib import Path

import typer

from cli import fold_options, gateway_options
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions
from cli.groups import with_options
from cli.options import DataDir, DataMode, LakeUrl, LogConfig, LogUrl
from pipelines.log.urls import with_config
from runtime.logs import configure


@with_options("of_fold", fold_options.OPTIONS, FoldOptions.of)
@with_options("of_gateways", gateway_options.OPTIONS, GatewayOptions.of)
def serve(
    context: typer.Context,
    data_dir: DataDir = Path("data"),
    data_mode: DataMode = "700",
    log: LogUrl = "",
    log_config: LogConfig = None,
    lake: LakeUrl = "",
    *,
    of_gateways: GatewayOptions,
    of_fold: FoldOptions,
) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    configure("serve")
    log = with_config(log, log_config)
    listen = of_gateways.listening(context)
    of_gateways.judge(data_dir, log, lake, listen, supervised=True)
    of_fold.judge(data_dir, lake)
    from cli.supervised import again, common_arguments, gateways, supervise
    from runtime.supervisor import Child

    common = common_arguments(data_dir, data_mode, log, lake)
    children = [
        *gateways(of_gateways, listen, common),
        Child("fold", again("fold", *common, *of_fold.arguments())),
    ]
    raise typer.Exit(supervise(children, data_dir, data_mode, listen, of_gateways))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)

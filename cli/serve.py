# SPDX-License-Identifier: Apache-2.0
"""`routelake serve`: gateways and the fold."""

from __future__ import annotations

import typer

from cli import fold_options, gateway_options
from cli.data_options import DataOptions, with_data
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions
from cli.groups import with_options
from runtime.logs import configure


@with_options("of_fold", fold_options.OPTIONS, FoldOptions.of)
@with_options("of_gateways", gateway_options.OPTIONS, GatewayOptions.of)
@with_data
def serve(
    context: typer.Context,
    *,
    data: DataOptions,
    of_gateways: GatewayOptions,
    of_fold: FoldOptions,
) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    configure("serve")
    listen = of_gateways.listening(context)
    of_gateways.judge(data, listen, supervised=True)
    of_fold.judge(data)
    from cli.supervised import again, gateways, supervise
    from runtime.supervisor import Child

    children = [
        *gateways(of_gateways, listen, data),
        Child("fold", again("fold", *data.arguments(), *of_fold.arguments())),
    ]
    raise typer.Exit(supervise(children, data, listen, of_gateways))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)

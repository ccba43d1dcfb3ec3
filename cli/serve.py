# SPDX-License-Identifier: Apache-2.0
"""`routelake serve`: gateways and the fold."""

from __future__ import annotations

import typer

from cli.data_options import DataOptions
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions
from cli.options import with_options
from runtime.logs import configure


@with_options
def serve(*, data: DataOptions, of_gateways: GatewayOptions, of_fold: FoldOptions) -> None:
    """Run the NameServer: gateways and the fold, supervised."""
    configure("serve")
    listen = of_gateways.listening()
    of_gateways.validate(data, listen, supervised=True)
    of_fold.validate(data)
    from cli.supervised import child, gateways, supervise

    children = [*gateways(of_gateways, listen, data), child("fold", data, of_fold)]
    raise typer.Exit(supervise(children, data, listen, of_gateways))

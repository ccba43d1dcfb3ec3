# SPDX-License-Identifier: Apache-2.0
"""`routelake history timeline` and `blame`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.history.options import Asking, Shown, ShownWhole
from cli.options import with_options
from schemas.errors import SetupError


@with_options
def timeline(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="The topic.")] = "",
    broker: Annotated[str, typer.Option("--broker", metavar="BROKERNAME", help="A broker group in its place.")] = "",
    from_: Annotated[str, typer.Option("--from", metavar="MOMENT", help="Only states that held then or later.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="MOMENT", help="Only states that began by then.")] = "",
    *,
    shown: Shown,
    asking: Asking,
) -> None:
    """Show the states of a topic's route, or of a broker group, one after the other, newest first.

    From when to when, what began and ended it, and what it was. With --to, what had not ended by then has no end. JSON
    is an object a line.
    """
    from cli.history.show_states import show_timeline

    if bool(topic) == bool(broker):
        raise SetupError("name a topic, or a broker group with --broker, and not both")
    kind, name = ("topics", topic) if topic else ("brokers", broker)
    pages = asking.source(context).timeline(kind, name, shown.moments(from_, to))
    show_timeline(pages, shown.form, shown.rows, shown.zone)


@with_options
def blame(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="MOMENT", help="Of its route then: an epoch, -2h, 'yesterday 02:55'.")
    ] = "now",
    *,
    shown: ShownWhole,
    asking: Asking,
) -> None:
    """Show who set each field of a topic's route, when, by what."""
    from cli.history.show_states import show_blame
    from cli.history.times import moment_text

    moment = moment_text(as_of, "--as-of", datetime.now(UTC), shown.zone)
    show_blame(asking.source(context).blame(topic, moment), shown.form, shown.zone)


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("timeline")(timeline)
    group.command("blame")(blame)

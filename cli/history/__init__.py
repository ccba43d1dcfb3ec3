# SPDX-License-Identifier: Apache-2.0
"""`routelake history`: past changes and their senders, from a running gateway or from the tables alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.history import report as history_report
from cli.history import tables as history_tables
from cli.history.options import Asking, Filters, From, Shown, ShownWhole, To
from cli.options import with_options
from cli.usage import group
from schemas.errors import SetupError

history = group(
    "History: changes, differences, timelines, verification. Asks a gateway (--http) or reads tables (--data-dir)."
)


@with_options
def changes(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    *,
    filters: Filters,
    shown: Shown,
    asking: Asking,
) -> None:
    """Show all changes with time and sender, newest first.

    In the table, equal changes of several topics by one event are one line. JSON has one object per line.
    """
    from cli.history.show import show_changes

    asked = {**shown.window(from_, to), **filters.query()}
    page = 1000 if shown.rows is None else min(1000, shown.rows + 1)
    source = asking.source(context)
    show_changes(source.changes(asked, page), shown.form, shown.rows, shown.zone, source.events_not_in_tables)


@with_options
def diff(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    *,
    filters: Filters,
    shown: Shown,
    asking: Asking,
) -> None:
    """Show the differences between two points in time.

    In the table, + marks a row of the later point in time only, - a row of the earlier only, ~ a row with other values.
    --command, --peer, --user and --outcome keep the rows that such a change affected.
    """
    from cli.history.show import show_diff

    if not from_:
        raise SetupError("--from is missing. Set it to the earlier point in time, such as -2h or 'yesterday 02:55'")
    asked = {**shown.window(from_, to), **filters.query()}
    show_diff(asking.source(context).diff(asked), shown.form, shown.rows, shown.zone)


@with_options
def timeline(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="The topic.")] = "",
    broker: Annotated[
        str, typer.Option("--broker", metavar="BROKERNAME", help="A broker group instead of a topic.")
    ] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Only states at or after this point in time.")
    ] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Only states that began up to this point in time.")
    ] = "",
    *,
    shown: Shown,
    asking: Asking,
) -> None:
    """Show the states of a topic's route, or of a broker group, one after the other, newest first.

    A state has its begin and end, and the commands that began and ended it. With --to, a state that had not ended by
    then has no end. JSON has one object per line.
    """
    from cli.history.show import show_timeline

    if bool(topic) == bool(broker):
        raise SetupError("set either TOPIC or --broker BROKERNAME")
    kind, name = ("topics", topic) if topic else ("brokers", broker)
    pages = asking.source(context).timeline(kind, name, shown.window(from_, to))
    show_timeline(pages, shown.form, shown.rows, shown.zone)


@with_options
def blame(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    as_of: Annotated[
        str,
        typer.Option("--as-of", metavar="TIME", help="Point in time of the route: an epoch, -2h, 'yesterday 02:55'."),
    ] = "now",
    *,
    shown: ShownWhole,
    asking: Asking,
) -> None:
    """Show the last change of each field of a topic's route."""
    from cli.history.show import point_in_time, show_blame

    point = point_in_time(as_of, "--as-of", datetime.now(UTC), shown.zone)
    show_blame(asking.source(context).blame(topic, point), shown.form, shown.zone)


for _command in (changes, diff, timeline, blame):
    history.command()(_command)
history_report.register(history)
history_tables.register(history)

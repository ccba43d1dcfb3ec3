# SPDX-License-Identifier: Apache-2.0
"""`routelake history changes` and `diff`."""

from __future__ import annotations

import typer

from cli.history.options import Asking, Filters, From, Shown, To
from cli.options import with_options
from schemas.errors import SetupError


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
    """Show everything that changed, newest first: when, by whom, what.

    In the table, rows that one cause changed alike in several topics are one line. JSON is an object a line.
    """
    from cli.history.show import show_changes

    asked = {**shown.moments(from_, to), **filters.query()}
    page = 1000 if shown.rows is None else min(1000, shown.rows + 1)
    show_changes(asking.source(context).changes(asked, page), shown.form, shown.rows, shown.zone)


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
    """Show what is different between two moments, whatever happened in between.

    In the table, + is a row that only the later moment has, - one that only the earlier has, ~ one that both have, with
    other values. --command, --peer, --user and --outcome keep the rows that such a change touched.
    """
    from cli.history.show import show_diff

    if not from_:
        raise SetupError("--from is missing: the earlier moment, such as -2h or 'yesterday 02:55'")
    asked = {**shown.moments(from_, to), **filters.query()}
    show_diff(asking.source(context).diff(asked), shown.form, shown.rows, shown.zone)


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("changes")(changes)
    group.command("diff")(diff)

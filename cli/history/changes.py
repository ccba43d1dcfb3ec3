# SPDX-License-Identifier: Apache-2.0
"""`routelake history changes` and `diff`."""

from __future__ import annotations

import typer

from cli.history.options import Asking, From, Shown, To, with_asking, with_filters, with_shown
from schemas.errors import SetupError


@with_asking
@with_shown
@with_filters
def changes(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    *,
    filters: dict[str, str],
    shown: Shown,
    asking: Asking,
) -> None:
    """Show everything that changed, newest first: when, by whom, what.

    In the table, rows that one cause changed alike in several topics are one line. JSON is an object a line.
    """
    from cli.history.show import show_changes

    asked = {**shown.moments(from_, to), **filters}
    page = 1000 if shown.limit is None else min(1000, shown.limit + 1)
    show_changes(asking.source().changes(asked, page), shown.form, shown.limit, shown.zone)


@with_asking
@with_shown
@with_filters
def diff(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    *,
    filters: dict[str, str],
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
    asked = {**shown.moments(from_, to), **filters}
    show_diff(asking.source().diff(asked), shown.form, shown.limit, shown.zone)


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("changes")(changes)
    group.command("diff")(diff)

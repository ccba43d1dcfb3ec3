# SPDX-License-Identifier: Apache-2.0
"""The `routelake admin` group. Its commands are imported when one of them is called or listed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from cli.usage import TEXT, Commands, group

if TYPE_CHECKING:
    from typer._click.core import Command, Context


class _Admin(Commands):
    """Knows its commands once somebody asks for them."""

    def list_commands(self, ctx: Context) -> list[str]:
        """In the order of their definition."""
        return _loaded().list_commands(ctx)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """One of them."""
        return _loaded().get_command(ctx, cmd_name)


@cache
def _loaded() -> TyperGroup:
    """All sub-commands, in the order in which help lists them."""
    from cli.admin import cluster_commands, compare_command, kv_commands, namesrv_commands, topic_commands, topic_views

    app = typer.Typer(**TEXT)
    for family in (topic_commands, topic_views, cluster_commands, kv_commands, namesrv_commands, compare_command):
        family.register(app)
    return typer.main.get_group(app)


admin = group(
    "mqadmin for stock and routelake NameServers, and `compare`, which checks them against each other.", _Admin
)

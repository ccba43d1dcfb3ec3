# SPDX-License-Identifier: Apache-2.0
"""The `admin` group without its commands: they are imported when one of them is called or listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from cli.usage import Commands, group

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


def _loaded() -> TyperGroup:
    from cli.admin.cli import app

    return typer.main.get_group(app)


admin = group(
    "mqadmin for stock and routelake NameServers, and `compare`, which checks them against each other.", _Admin
)

# SPDX-License-Identifier: Apache-2.0
"""``routelake history ...``: what was, who did it, and a proof of both."""

from __future__ import annotations

import typer

from cli import history_verify, usage

history = typer.Typer(
    name="history", help="What was, who did it, and a proof of both.", cls=usage.Commands, **usage.TEXT
)
history_verify.register(history)


@history.callback()
def _group() -> None:
    """What was, who did it, and a proof of both."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(history)

# SPDX-License-Identifier: Apache-2.0
"""`routelake history`: what was, who did it; from a running gateway or from the tables alone."""

from __future__ import annotations

import typer

from cli.history import changes as history_changes
from cli.history import rebuild as history_rebuild
from cli.history import report as history_report
from cli.history import states as history_states
from cli.history import verify as history_verify
from cli.usage import group

history = group(
    "The past: changes, differences, timelines, a proof. Asks a gateway (--http), or reads tables (--data-dir)."
)
history_changes.register(history)
history_states.register(history)
history_report.register(history)
history_verify.register(history)
history_rebuild.register(history)


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(history, name="history")

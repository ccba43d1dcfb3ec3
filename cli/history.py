# SPDX-License-Identifier: Apache-2.0
"""`routelake history`: what was, who did it; from a running gateway or from the tables alone."""

from __future__ import annotations

import typer

from cli import history_changes, history_rebuild, history_report, history_states, history_verify
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

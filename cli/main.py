# SPDX-License-Identifier: Apache-2.0
"""The `routelake` command. Each command is thin: it reads options and hands over.

Options are environment variables, too: ``--data-dir`` is ROUTELAKE_DATA_DIR, and so on. Exit codes: 0 done, 1 failed,
2 cannot start as things are (the message says what to do).
"""

from __future__ import annotations

import typer

from cli import backup, developer, doctor, event_log, fold, gateway, kv_import, lake, plan, serve, sql, usage
from cli import broker as broker_cli
from cli import route as route_cli
from cli.admin.cli import admin
from cli.history import cli as history
from runtime.process import run_to_end

app = typer.Typer(name="routelake", **usage.TEXT)
app.add_typer(admin, name="admin")
serve.register(app)
gateway.register(app)
fold.register(app)
developer.register(app)
backup.register(app)
doctor.register(app)
broker_cli.register(app)
history.register(app)
kv_import.register(app)
lake.register(app)
event_log.register(app)
plan.register(app)
route_cli.register(app)
sql.register(app)
usage.register(app)


def main() -> None:
    """Entry point: errors raised on purpose become one line and an exit code."""
    raise SystemExit(usage.run(app))


if __name__ == "__main__":
    run_to_end(main)

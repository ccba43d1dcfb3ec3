# SPDX-License-Identifier: Apache-2.0
"""The `routelake` command. Each command only reads its options and calls other modules.

Each option has an environment variable, for example ROUTELAKE_DATA_DIR for ``--data-dir``. Exit codes: 0 done,
1 failed, 2 cannot start with these settings (the message has the remedy).
"""

from __future__ import annotations

import typer

from cli import usage
from cli.admin import admin
from cli.backup import backup, restore
from cli.broker import broker, fleet
from cli.doctor import doctor
from cli.fold import fold
from cli.gateway import gateway, health, serve
from cli.history import history
from cli.kv_import import import_kv
from cli.options import SectionedHelp
from cli.plan import plan
from cli.route import route
from cli.sql import spark_sql, sql
from cli.transfer import event_log, lake
from runtime.process import run_to_end
from runtime.version import IS_CLONE, PROGRAM

app = typer.Typer(
    name="routelake",
    cls=usage.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    **usage.TEXT,
)
app.callback()(usage.root)
for sectioned in (serve, gateway, fold):
    app.command(cls=SectionedHelp)(sectioned)
for command in (health, backup, restore, doctor, broker, fleet, import_kv, plan, route, spark_sql, sql):
    app.command()(command)
for name, group in {"admin": admin, "history": history, "lake": lake, "event-log": event_log}.items():
    app.add_typer(group, name=name)
app.command(help=f"Print a completion script, for: source <({PROGRAM} completion bash).")(usage.completion)
if IS_CLONE:
    from dev import commands

    commands.register(app)


def main() -> None:
    """Entry point. Expected errors become one line and an exit code."""
    raise SystemExit(usage.run(app))


if __name__ == "__main__":
    run_to_end(main)

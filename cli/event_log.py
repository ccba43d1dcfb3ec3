# SPDX-License-Identifier: Apache-2.0
"""`routelake event-log`: moves the event log from SQLite to Kafka; docs/how-to/operate/move-sqlite-to-kafka.md."""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.data_options import DataDir, LogConfig, check_there
from cli.options import no_password
from cli.usage import group
from eventlog.urls import first_offset, is_kafka, parse_url, sqlite_path, with_config
from runtime.machine import acting_as_owner
from schemas.errors import SetupError

event_log = group("Move the event log.")


@event_log.command()
def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            callback=no_password,
            help="Event log in Kafka, kafka://host:port/topic. The first offset is added to the topic's name.",
        ),
    ],
    data_dir: DataDir = Path("data"),
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            callback=no_password,
            help="Event log in SQLite, sqlite:///abs/path.db. Default: the event log of the data directory.",
        ),
    ] = "",
    log_config: LogConfig = None,
) -> None:
    """Move a SQLite event log to Kafka, with its offsets and times. Stop gateways and fold first."""
    from eventlog.copy import move
    from eventlog.kafka.copy import KafkaTarget
    from lake.delta.ddl import lock_lake

    if not is_kafka(to):
        raise SetupError(f"--to {to!r} is not an event log in Kafka. Set kafka://host:port/topic.")
    to = with_config(to, log_config)
    if first_offset(parse_url(to).topic):
        raise SetupError(f"--to {to}: remove .from-NUMBER from the topic. routelake adds it.")
    lake_dir = (data_dir / "lake").resolve()
    check_there(lake_dir, data_dir)
    path = sqlite_path(source or f"sqlite://{data_dir.resolve()}/events.db")
    with acting_as_owner(data_dir), closing(lock_lake(lake_dir)):
        moved = move(path, partial(KafkaTarget, to), _say)
        shutil.rmtree(data_dir / "checkpoints" / "fold", ignore_errors=True)  # it names the old log
    print(f"{path}: moved to {moved.to}, offsets {moved.extent.first} to {moved.extent.end - 1}")
    print(f"  verified: every record has its offset, time, key and payload there ({moved.copied} were new)")
    print(f"  from now on, use --event-log {moved.to}{f' --event-log-config {log_config}' if log_config else ''}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)

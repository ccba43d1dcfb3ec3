# SPDX-License-Identifier: Apache-2.0
"""`routelake lake` and `event-log`: tables to and from an object store, and the event log from SQLite to Kafka.

See docs/how-to/operate/object-store.md and move-sqlite-to-kafka.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli import preflight
from cli.data_options import DataDir, DataMode, LogConfig, check_there, lake_place
from cli.options import no_password, usable_folder
from cli.usage import group
from eventlog.urls import first_offset, is_kafka, parse_url, sqlite_path, with_config
from runtime.machine import acting_as_owner, mask_files
from schemas.errors import SetupError

Url = Annotated[str, typer.Argument(metavar="URL", help="Location of the tables: s3://, gs:// or az://bucket/prefix.")]
Folder = Annotated[
    Path,
    typer.Argument(metavar="DATA_DIR", callback=usable_folder, help="Data directory. Its tables are in DATA_DIR/lake."),
]

lake = group("Download tables from an object store, or upload those of a data directory.")
event_log = group("Move the event log.")


@lake.command()
def get(url: Url, data_dir: Folder, data_mode: DataMode = "700") -> None:
    """Download the tables at a URL, with their whole history. The fold can run meanwhile.

    history, sql and spark-sql read them with --data-dir DATA_DIR. Later changes at the URL do not reach this copy.
    """
    from lake.store import open_store
    from lake.transfer import get as run

    store = open_store(url)
    preflight.check_data_dir(data_dir)
    mask_files(data_mode)
    with acting_as_owner(data_dir), _in_words(url):
        run(store, data_dir / "lake")
    print(f"{data_dir}: has the tables of {url}")


@lake.command()
def put(data_dir: Folder, url: Url) -> None:
    """Upload the tables of a data directory to a URL that has none. Stop the fold first.

    Afterwards start routelake with --lake URL. The event log stays where it is. The tables can be a restored backup.
    """
    from lake.delta.ddl import lock_lake
    from lake.store import open_store, probe
    from lake.transfer import put as run

    store = open_store(url)
    lake_dir = (data_dir / "lake").resolve()
    check_there(lake_dir, data_dir)
    with acting_as_owner(data_dir), closing(lock_lake(lake_dir)), _in_words(url):
        probe(store)
        run(lake_dir, store)
    print(f"{url}: has the tables of {data_dir}; continue with --lake {url}")


@contextmanager
def lake_folder(data_dir: Path, url: str) -> Iterator[Path]:
    """Yield a folder with the tables to read: those of --data-dir, or a temporary download of those of --lake.

    Raises:
        SetupError: There is no lake, or it cannot be downloaded.
    """
    place = lake_place(data_dir, url)
    if not place.url:
        yield place.folder
        return
    from lake.store import open_store
    from lake.transfer import get as run

    with tempfile.TemporaryDirectory(prefix="routelake-lake-") as scratch:
        folder = Path(scratch) / "lake"
        with _in_words(url):
            run(open_store(url), folder)
        yield folder


@contextmanager
def _in_words(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"--lake {url}: {error}") from error


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
    path = sqlite_path(source or f"sqlite://{data_dir.resolve()}/events.db")
    # Tables at a URL have no folder here. A fold that runs is then noticed by its open event log alone.
    lock = closing(lock_lake(lake_dir)) if lake_dir.is_dir() else nullcontext()
    with acting_as_owner(data_dir), lock:
        moved = move(path, partial(KafkaTarget, to), _say)
        shutil.rmtree(data_dir / "checkpoints" / "fold", ignore_errors=True)  # it refers to the old log
    print(f"{path}: moved to {moved.to}, offsets {moved.extent.first} to {moved.extent.end - 1}")
    print(f"  verified: every record has its offset, time, key and payload there ({moved.copied} were new)")
    print(f"  from now on, use --event-log {moved.to}{f' --event-log-config {log_config}' if log_config else ''}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)

# SPDX-License-Identifier: Apache-2.0
"""`routelake history verify` and `rebuild`: verification of the tables, and a rebuild of the interval tables.

See docs/reference/tables.md, "A proof" and "Intervals".
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cli.data_options import DataDir, DataMode, LakeUrl, LogConfig, LogUrl, check_there, lake_place, log_url
from cli.output import Output
from cli.transfer import lake_folder
from eventlog.urls import with_config
from runtime.disk import at_start
from runtime.machine import acting_as_owner, mask_files
from runtime.version import PROGRAM
from schemas.errors import RoutelakeError, SetupError, UnavailableError, one_line

if TYPE_CHECKING:
    from eventlog.base import LogReader
    from ops.verify.report import VerifyReport


def verify(
    data_dir: DataDir = Path("data"),
    log: LogUrl = "",
    log_config: LogConfig = None,
    lake: LakeUrl = "",
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="EPOCH:DIGEST", help="Digest of an earlier verification, kept elsewhere."),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
) -> None:
    """Verify the tables: the hash chain, the state tables against the changes, and all against the event log.

    It only reads. routelake may run. Exit code: 0 verified, 1 refuted, 2 nothing could be verified.
    """
    from ops.verify.verify import verify as prove

    log = with_config(log, log_config)
    expected = _digests(expect or [])
    with lake_folder(data_dir, lake) as lake_dir:
        check_there(lake_dir, data_dir)
        events = _log(log_url(data_dir, log))
        try:
            report = prove(lake_dir, events, expected=expected, say=_say)
        finally:
            if events is not None:
                events.close()
    if output is Output.JSON:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _log(url: str) -> LogReader | None:
    """Return the event log, or None if it cannot be read."""
    from eventlog.open import open_reader

    try:
        return open_reader(url)
    except RoutelakeError as error:
        _say(one_line(error))
        return None


def _show(report: VerifyReport) -> None:
    for what in report.verified:
        print(f"verified: {what}")
    for what in report.not_verified:
        print(f"not verified: {what}")
    for what in report.refuted:
        print(f"refuted: {what}")
    if report.more_refuted:
        print(f"refuted: {report.more_refuted} more of this kind")
    if report.digest is not None:
        print(f"newest digest: {report.epoch}:{report.digest} (keep it elsewhere; --expect compares)")


def _say(line: str) -> None:
    print(f"routelake: {line}", file=sys.stderr, flush=True)


def _digests(texts: Sequence[str]) -> dict[int, str]:
    """Parse the digests by epoch. Raises SetupError."""
    found: dict[int, str] = {}
    for text in texts:
        epoch, colon, digest = text.partition(":")
        if not colon or not epoch.isdecimal() or len(digest) != 64:
            raise SetupError(
                f"--expect {text}: write EPOCH:DIGEST, such as the last line of '{PROGRAM} history verify' says."
            )
        found[int(epoch)] = digest.lower()
    return found


def rebuild(data_dir: DataDir = Path("data"), data_mode: DataMode = "700", lake: LakeUrl = "") -> None:
    """Rebuild the interval tables from all changes. Stop the fold first. Gateways can run."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    from lake.delta.log import DamagedTableError
    from lake.history.intervals import rebuild as run
    from lake.store import StoreError, StoreRefusedError

    place = lake_place(data_dir, lake)
    where = place.url or (place.folder if lake else data_dir)
    mask_files(data_mode)
    try:
        with _of_store(place.url) if place.url else _of_folder(place.folder) as lake_dir:
            epoch = run(lake_dir, _say_progress)
    except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException) as error:
        passes = isinstance(error, StoreError) and not isinstance(error, StoreRefusedError)
        kind = UnavailableError if passes else at_start(error)
        raise kind(
            f"cannot rebuild the interval tables of {where}: {one_line(error)}. Then run the command again."
        ) from error
    print(f"{where}: interval tables rebuilt from the changes of epochs 1 to {epoch}")


@contextmanager
def _of_folder(lake_dir: Path) -> Iterator[Path]:
    from lake.delta.ddl import check_format, lock_lake

    check_there(lake_dir, lake_dir)
    check_format(lake_dir)
    with acting_as_owner(lake_dir), closing(lock_lake(lake_dir)):
        yield lake_dir


@contextmanager
def _of_store(url: str) -> Iterator[Path]:
    """Yield a copy of the tables that is downloaded under the lease of a fold, and publish it at the end."""
    from lake.delta.ddl import LAKE_FILE
    from lake.lease import LeasedLake
    from lake.store import open_store

    if open_store(url).find(LAKE_FILE) is None:
        raise SetupError(f"there is no lake at {url}: it has no {LAKE_FILE}.")
    with tempfile.TemporaryDirectory(prefix="routelake-lake-") as scratch:
        copy_dir = Path(scratch) / "lake"
        copy_dir.mkdir()
        held = LeasedLake.at(url, copy_dir)
        try:
            held.take(_wait, standby=False)
            yield copy_dir
            held.publisher.publish_all()
        finally:
            held.close()


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _say_progress(epoch: int, last: int) -> None:
    print(f"routelake: epoch {epoch:,} of {last:,}", file=sys.stderr, flush=True)


def register(group: typer.Typer) -> None:
    """Add the commands to the group."""
    group.command()(verify)
    group.command()(rebuild)

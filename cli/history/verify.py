# SPDX-License-Identifier: Apache-2.0
"""``routelake history verify``: a proof that the tables are what happened; docs/reference/tables.md, "A proof"."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cli.data_options import DataDir, LakeUrl, LogConfig, LogUrl, check_there, log_url
from cli.lake import lake_folder
from cli.route import Output
from eventlog.urls import with_config
from schemas.errors import RoutelakeError, SetupError, one_line

if TYPE_CHECKING:
    from eventlog.base import LogReader
    from ops.verify.report import Report


def verify(
    data_dir: DataDir = Path("data"),
    log: LogUrl = "",
    log_config: LogConfig = None,
    lake: LakeUrl = "",
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="EPOCH:DIGEST", help="A digest that was kept elsewhere."),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to show the result.")] = Output.TABLE,
) -> None:
    """Prove that the tables are what happened: the chain of epochs, the tables against the changes and the log.

    It only reads, beside a running routelake or without one. Exit code: 0 proved, 1 refuted, 2 nothing could be proved.
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
    """The event log, if it can be read."""
    from eventlog.open import open_reader

    try:
        return open_reader(url)
    except RoutelakeError as error:
        _say(one_line(error))
        return None


def _show(report: Report) -> None:
    for what in report.proved:
        print(f"proved: {what}")
    for what in report.not_proved:
        print(f"not proved: {what}")
    for what in report.refuted:
        print(f"refuted: {what}")
    if report.more_refuted:
        print(f"refuted: {report.more_refuted} more like these")
    if report.digest is not None:
        print(f"newest digest: {report.epoch}:{report.digest} (keep it elsewhere; --expect compares)")


def _say(line: str) -> None:
    print(f"routelake: {line}", file=sys.stderr, flush=True)


def _digests(texts: Sequence[str]) -> dict[int, str]:
    """Epoch to digest. Raises SetupError."""
    found: dict[int, str] = {}
    for text in texts:
        epoch, colon, digest = text.partition(":")
        if not colon or not epoch.isdecimal() or len(digest) != 64:
            raise SetupError(
                f"--expect {text}: write EPOCH:DIGEST, such as the last line of './routelake history verify' says."
            )
        found[int(epoch)] = digest.lower()
    return found


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command()(verify)

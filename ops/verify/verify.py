# SPDX-License-Identifier: Apache-2.0
"""All checks of a verification, on the tables of the newest epoch at its start, so that the fold may run meanwhile.

Memory does not grow with the tables. Changes are read window by window, rows of tables in batches, and a replay has one
part of the broker groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from eventlog.base import LogReader
from lake.commits import plain_commits
from lake.delta.ddl import check_format
from lake.delta.log import DamagedTableError, active, table_uri
from lake.write.windows import ChangeWindows
from ops.verify.balance import Balance
from ops.verify.chain import ChainCheck
from ops.verify.replay import check_replay
from ops.verify.report import Proof, VerifyReport
from schemas.errors import SetupError, one_line
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_COMMIT_TABLE, STATE_TABLES


def verify(
    lake_dir: Path,
    log: LogReader | None,
    *,
    expected: Mapping[int, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> VerifyReport:
    """Verify a lake as far as possible. No file is written.

    Args:
        lake_dir: directory of the lake. The fold may run.
        log: the event log of the lake, or None if it is not available.
        expected: digests that the user has stored elsewhere, by epoch.
        say: progress callback with a line of text.

    Raises:
        SetupError: the lake is missing or cannot be read.
    """
    check_format(lake_dir)
    report = VerifyReport()
    try:
        files = active(table_uri(str(lake_dir), ROUTE_COMMIT_TABLE)).files
        commits = plain_commits(lake_dir, files)
        if not commits:
            report.not_verified.append("there is no epoch yet: nothing was written")
            for epoch in expected or {}:
                report.refute(f"there is no epoch {epoch} of the given digest")
            return report
        proof = Proof(str(lake_dir), commits, files, report, say)
        last = proof.last
        report.epoch, report.digest = last.epoch, last.chain
        windows = ChangeWindows(str(lake_dir), last=last.epoch)
        say(f"epochs 1 to {last.epoch:,}, {windows.rows:,} changes")
        balance = Balance(proof)
        ChainCheck(proof).run(windows, balance.take, expected or {})
        if missing := _not_readable(lake_dir, last):
            report.refute(f"epoch {last.epoch} names versions of tables that cannot be read: {missing}")
            return report
        balance.check(windows)
        check_replay(proof, log)
    except (DamagedTableError, DeltaError, OSError, pa.ArrowException) as error:
        raise SetupError(f"the lake {lake_dir} cannot be read: {one_line(error)}.") from error
    return report


def _not_readable(lake_dir: Path, last: RouteCommit) -> str:
    """Return the reason why the tables cannot be read at the versions of an epoch. Empty if they can."""
    for table in STATE_TABLES:
        try:
            active(table_uri(str(lake_dir), table), last.versions[table.name])
        except (DamagedTableError, DeltaError, OSError, KeyError) as error:
            return f"{table.name}: {one_line(error)}"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""Reading of the fold's state from the tables, if the checkpoint of its query is lost.

The tables have the state at the last epoch. Only the times in brokerLiveTable may be older than in the lost state
store, as heartbeats are written every ten seconds. So the tables are read at the newest epoch with livenessOffset equal
to logOffset. The driver then applies the later events up to the last epoch with the same state machine. The result
is exactly the lost state, and no row is written twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from eventlog.base import LOST_LOG, EventLog, lacks
from lake.commits import last_commit, last_exact_commit
from lake.delta.log import DamagedTableError
from lake.view_loader import load_view
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import RouteState
from nameserver.view.conversions import whole_state_of
from runtime.disk import at_start
from runtime.version import PROGRAM
from schemas.errors import SetupError, one_line
from schemas.route_commit import RouteCommit


@dataclass(frozen=True, slots=True)
class Seed:
    """A state, and the offset of the first event that it does not contain."""

    state: RouteState
    next_offset: int
    epoch: int


def read_seed(lake_dir: Path, log: EventLog) -> Seed:
    """Read the state at the last epoch from the tables and a few seconds of the event log. Empty for an empty lake.

    Raises:
        SetupError: a table cannot be read, or the event log lacks required records.
        UnavailableError: the disk is full or failing.
    """
    try:
        return _read_seed(lake_dir, log)
    except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise at_start(error)(
            f"the state cannot be read back from the tables in {lake_dir}: {one_line(error)}. If this repeats, run "
            f"`{PROGRAM} doctor`, or restore the lake from a backup."
        ) from error


def _read_seed(lake_dir: Path, log: EventLog) -> Seed:
    last = last_commit(lake_dir)
    if last is None:
        return Seed(RouteState(), 0, 0)
    exact = last_exact_commit(lake_dir)
    # Without an exact epoch the lake is only seconds old, so its event log is complete and short.
    state, first = (read_state(lake_dir, exact), exact.log_offset + 1) if exact is not None else (RouteState(), 0)
    state = replay(state, _between(log, first, last.log_offset))
    return Seed(state, last.log_offset + 1, last.epoch)


def read_state(lake_dir: Path, commit: RouteCommit) -> RouteState:
    """State at one commit of routeCommitTable."""
    return whole_state_of(load_view(str(lake_dir), commit))


def _between(log: EventLog, first: int, last: int) -> Iterable[Any]:
    while first <= last:
        records = log.read(first)
        if not records or lacks(log, first, records):
            raise SetupError(
                f"the event log lacks records from offset {first} on; up to offset {last} they are needed to bring the "
                f"state in the tables up to date. {LOST_LOG}",
                first_missing=first,
            )
        for record in records:
            if record.offset > last:
                return
            yield record
        first = records[-1].offset + 1

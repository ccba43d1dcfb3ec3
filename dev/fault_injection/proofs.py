# SPDX-License-Identifier: Apache-2.0
"""Proofs by the product and its test kit about a lake: the hash chain of epochs, and the interval tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from dev.support.intervals import assert_kept, assert_now
from eventlog.base import DEFAULT_READ_RECORDS, LogRecord
from lake.commits import last_commit
from lake.history.intervals import IntervalKeeper
from ops.verify.verify import verify
from schemas.tables import ROUTE_CHANGE_TABLE


class _Kept:
    """Records that were read before, as a log."""

    def __init__(self, records: Sequence[LogRecord]) -> None:
        self._records, self._offsets = records, [record.offset for record in records]

    def read(self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = 0) -> list[LogRecord]:
        first = bisect_left(self._offsets, start_offset)
        return list(self._records[first : first + max_records])

    def kept_from(self, offset: int) -> int:
        place = bisect_left(self._offsets, offset)
        return self._offsets[place] if place < len(self._offsets) else offset

    def close(self) -> None:
        return


def unproved(records: Sequence[LogRecord], lake_dir: Path) -> list[str]:
    """Return the statements that `history verify` refutes, or finds no proof of."""
    report = verify(lake_dir, _Kept(records))
    return [*report.refuted, *(f"not proved: {what}" for what in report.not_proved)]


def wrong_intervals(lake_dir: Path) -> str:
    """Return the difference of interval tables from changes, or of open intervals from the state; "" for none.

    Changes that the fold had not entered by its end are entered now: nothing else may write the lake.
    """
    last = last_commit(lake_dir)
    if last is None:
        return ""
    IntervalKeeper(lake_dir).catch_up(last.epoch, last.versions[ROUTE_CHANGE_TABLE.name])
    try:
        assert_kept(lake_dir)
        assert_now(lake_dir)
    except AssertionError as error:
        return str(error)[:4_000] or "they are not"
    return ""

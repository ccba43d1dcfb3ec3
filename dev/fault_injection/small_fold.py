# SPDX-License-Identifier: Apache-2.0
"""The fold process without Spark, for runs that are about the rest: `dev.support.fold` in the place of the query.

Rules, row changes, tables, commits, maintenance, lock and supervision are the product's own.
"""

from __future__ import annotations

import traceback
from typing import Any, Final

from dev.support.fold import FoldThread
from eventlog.base import EventLog
from eventlog.open import open_log

_BATCH_S: Final = 0.4
"""A batch begins at most this often."""


class _Kept(FoldThread):
    """One that keeps house between batches."""

    def __init__(self, log: EventLog, settings: Any) -> None:
        super().__init__(
            log,
            settings.lake_dir,
            liveness_interval_s=settings.liveness_interval_s,
            retention_days=settings.retention_days,
            log_retention_hours=settings.log_retention_hours,
        )

    def _batch(self) -> bool:
        self._stop.wait(_BATCH_S)
        self._write(self._log.read(self._next_offset))
        self._write_status()
        assert self._maintenance is not None
        self._maintenance.step(self.writer)
        return True


def fold(spark: None, settings: Any, stop: Any, publisher: None) -> int:
    """In the place of `pipelines.main._fold`: a batch that fails ends the one, and another goes on from the tables.

    The lake is in a folder, so there is no publisher.
    """
    while not stop.wait(0.5):
        log = open_log(settings.log_url)
        try:
            with _Kept(log, settings) as running:
                while running.error is None and not stop.wait(0.1):
                    pass
        except Exception as error:
            traceback.print_exception(error)
        finally:
            log.close()
    return 0
